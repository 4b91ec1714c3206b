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
};

// Returns false, with a sentence and errno in *error_number, on failure.
bool ForkRank(const task::ShimSpec& spec, Launch* launch, std::string* error,
              int* error_number);

bool Release(Launch* launch);

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
