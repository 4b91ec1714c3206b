// Starting, naming, signalling and waiting for processes.
//
// A process is its pid and its start time, for pids come again; it is held by
// a pidfd, by which it is signalled and waited for. Nothing here signals a
// bare number. All functions are safe from any thread.
#ifndef LOCKSTEP_COMMON_OS_PROCESS_H_
#define LOCKSTEP_COMMON_OS_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/status.h"

namespace lockstep {

struct ProcessId {
  pid_t pid = 0;
  // Clock ticks since boot when it started: /proc/PID/stat field 22.
  uint64_t start_time = 0;

  bool operator==(const ProcessId&) const = default;
};

// A process and the pidfd that holds it. Destroying it leaves the process.
struct Process {
  ProcessId id;
  Fd pidfd;  // Readable once the process has ended.
};

struct SpawnOptions {
  // A path, or a name that is looked for in the caller's PATH.
  std::string program;
  std::vector<std::string> argv;  // With argv[0]; empty: {program}.
  std::vector<std::string> env;   // All of it, "NAME=value".
  std::string cwd;                // Empty: the caller's.

  // Descriptors of the caller for 0, 1 and 2. -1: /dev/null. `stdout_path`
  // (and `stderr_path`), where set, is opened for appending instead and made
  // with mode 0640 where it is missing; the same path for both is fine.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  std::string stdout_path;
  std::string stderr_path;
  // Become 3, 4, ... in the new process, in this order. All others are closed.
  std::vector<int> fds;

  // Leads a session (and process group) of its own: no terminal's signals.
  bool new_session = false;
};

// Starts a child by posix_spawn: default signals, empty mask, and only the
// descriptors that are listed, so it is right in a process with threads.
// NotFound or PermissionDenied name the program when exec fails.
// The caller must WaitExit for it (or it stays a zombie).
StatusOr<Process> Spawn(const SpawnOptions& options);

// The caller's environment, for SpawnOptions::env.
std::vector<std::string> CurrentEnvironment();

// /proc/sys/kernel/random/boot_id, without its newline.
StatusOr<std::string> BootId();

// NotFound when there is no such process.
StatusOr<uint64_t> StartTime(pid_t pid);

// Holds the process, if it still is the one. NotFound when it has ended (a
// zombie has) or the pid is another process's now.
StatusOr<Process> OpenVerified(const ProcessId& id);

// NotFound when the process has been reaped.
Status SendSignal(const Process& process, int signo);

struct ProcessExit {
  // False for a process that is not our child: that it ended is all we know.
  bool known = false;
  int code = 0;    // When signal is 0.
  int signal = 0;  // The one that killed it.

  bool ok() const { return known && code == 0 && signal == 0; }
  // "exited with code 3", "killed by signal 9 (Killed)", "ended".
  std::string Describe() const;
};

bool HasEnded(const Process& process);

// Waits for the end and reaps a child. DeadlineExceeded at `deadline`; one in
// the past only looks. A second call for the same child gives known = false.
StatusOr<ProcessExit> WaitExit(const Process& process, MonoTime deadline);

// SIGTERM, up to `grace`, SIGKILL, up to 5 s: for a process of ours that must
// go. DeadlineExceeded when even SIGKILL did not end it in time.
StatusOr<ProcessExit> StopProcess(const Process& process, Duration grace);

// Both ends close on exec.
struct Pipe {
  Fd read;
  Fd write;
};
StatusOr<Pipe> MakePipe();

// An anonymous file that holds `bytes`, sealed against every change, its
// position at 0: to hand something to a child that no other may see.
StatusOr<Fd> MakeMemfd(const std::string& name, std::string_view bytes);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_OS_PROCESS_H_
