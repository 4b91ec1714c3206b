// Starts a rank: fork, change user and groups, exec.
#ifndef LOCKSTEP_WORKER_SHIM_LAUNCH_H_
#define LOCKSTEP_WORKER_SHIM_LAUNCH_H_

#include <sys/types.h>

#include <string>

#include "worker/shim/io.h"
#include "worker/task/shim_spec.h"

namespace lockstep::worker::shim {

// A forked rank that waits for Release() before it executes its program.
struct Launch {
  pid_t pid = 0;
  Fd go;      // Closing it without a word ends the child.
  Fd status;  // End of file: exec succeeded. A StartFailure: it did not.
  Fd init;    // InitReports of a container that makes them.
  Fd out;     // Read ends of its standard output and error.
  Fd err;
  Fd warm;  // Of an interpreter that waits: the socket that tells it its rank.
};

// Returns false, with a sentence and errno in *error_number, on failure.
bool ForkRank(const task::ShimSpec& spec, Launch* launch, std::string* error,
              int* error_number);

// Streams of a command besides the rank's program.
struct CommandIo {
  int in;
  int out;
  int err;
  bool terminal;  // `in` becomes the command's controlling terminal.
  int control;    // Its descriptor 3; -1: none.
  pid_t daemon;   // The shim's parent.
};
// The same for a command with the rights of the rank, without the rank's secret
// and with streams of its own: `out`, `err` and `init` stay empty.
bool ForkCommand(const task::ShimSpec& spec, const CommandIo& io,
                 Launch* launch, std::string* error, int* error_number);

bool Release(Launch* launch);

// Starts the interpreter of a warm start (warm.h), whose descriptor 3 is the
// other end of `launch->warm`.
bool ForkWarm(const task::ShimSpec& spec, Launch* launch, std::string* error,
              int* error_number);
// Lets the rank run: one that ForkRank has made, or an interpreter, which gets
// the command, environment and directory of `spec`.
bool Release(const task::ShimSpec& spec, Launch* launch);
// Lets the rank end instead.
void Abandon(Launch* launch);

// With close-on-exec. Returns false and sets errno.
bool MakePipe(Fd* read_end, Fd* write_end);

// For a child that prepares itself: tells PollStart why its exec failed.
[[noreturn]] void ReportExecFailure(int status, int error);

struct StartFailure {
  int error = 0;  // errno.
  std::string message;
};

enum class StartResult { kPending, kRunning, kFailed };

// Polls launch->status without blocking.
StartResult PollStart(const task::ShimSpec& spec, Launch* launch,
                      StartFailure* failure);

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_LAUNCH_H_
