// Starts, identifies, signals and waits for processes.
//
// A process is identified by pid and start time, because pids are reused. A
// pidfd holds it, and signals and waits go through the pidfd, never through a
// bare pid. All functions are safe from any thread.
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
  // A path, or a name that is searched in the caller's PATH.
  std::string program;
  std::vector<std::string> argv;  // With argv[0]; {program} if empty.
  std::vector<std::string> env;   // The whole environment, "NAME=value".
  std::string cwd;                // The caller's if empty.

  // The caller's descriptors for 0, 1 and 2; -1 for /dev/null. If `stdout_path`
  // (or `stderr_path`) is set, that file is opened for appending instead and
  // created with mode 0640. Both may be the same path.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  std::string stdout_path;
  std::string stderr_path;
  // They become 3, 4, ... in the new process, in this order. All others close.
  std::vector<int> fds;

  // Starts a new session and process group, so no terminal sends it signals.
  bool new_session = false;
};

// Starts a child by posix_spawn with default signals, an empty mask and only
// the listed descriptors, so it is safe in a process with threads. NotFound or
// PermissionDenied names the program if exec fails. The caller must call
// WaitExit, or the child stays a zombie.
StatusOr<Process> Spawn(const SpawnOptions& options);

// The caller's environment, for SpawnOptions::env.
std::vector<std::string> CurrentEnvironment();

// /proc/sys/kernel/random/boot_id, without its newline.
StatusOr<std::string> BootId();

// NotFound if there is no such process.
StatusOr<uint64_t> StartTime(pid_t pid);

// Opens the process if it still exists. NotFound if it has ended (or is a
// zombie), or the pid belongs to another process.
StatusOr<Process> OpenVerified(const ProcessId& id);

// NotFound if the process has been reaped.
Status SendSignal(const Process& process, int signo);

struct ProcessExit {
  // False for a process that is not a child: only its end is known.
  bool known = false;
  int code = 0;    // When signal is 0.
  int signal = 0;  // The signal that killed it.

  bool ok() const { return known && code == 0 && signal == 0; }
  // "exited with code 3", "killed by signal 9 (Killed)", "ended".
  std::string Describe() const;
};

bool HasEnded(const Process& process);

// Waits for the end and reaps a child. DeadlineExceeded at `deadline`; a past
// deadline polls. A second call for the same child gives known = false.
StatusOr<ProcessExit> WaitExit(const Process& process, MonoTime deadline);

// Sends SIGTERM, waits up to `grace`, sends SIGKILL, waits up to 5 s.
// DeadlineExceeded if SIGKILL did not end the process in time.
StatusOr<ProcessExit> StopProcess(const Process& process, Duration grace);

// Both ends are close-on-exec.
struct Pipe {
  Fd read;
  Fd write;
};
StatusOr<Pipe> MakePipe();

// Returns an anonymous, sealed file with `bytes` and position 0. It passes data
// to a child that no other process may see.
StatusOr<Fd> MakeMemfd(const std::string& name, std::string_view bytes);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_OS_PROCESS_H_
