// Runs a short command of a container engine and captures its output.
#ifndef LOCKSTEP_WORKER_CONTAINER_COMMAND_H_
#define LOCKSTEP_WORKER_CONTAINER_COMMAND_H_

#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep::worker::container {

struct CommandResult {
  int code = 0;            // 128 + the signal that ended it.
  std::string output;      // Standard output, its first 4 MiB.
  std::string last_error;  // The last line of standard error.

  bool ok() const { return code == 0; }
};

struct Command {
  std::vector<std::string> argv;  // argv[0] is a path.
  std::vector<std::string> env;
  // Called for each line of standard error, and about once a second with the
  // last one again; returns false to end the command. May be empty.
  std::function<bool(const std::string&)> on_line;
  // Ends the command after this time without output or I/O. 0: only the
  // deadline ends it.
  Duration idle_limit{};
};

// Blocks. DeadlineExceeded (also when idle) or Cancelled if the command was
// ended; errors of Spawn.
StatusOr<CommandResult> RunCommand(const Command& command, MonoTime deadline);

}  // namespace lockstep::worker::container

#endif  // LOCKSTEP_WORKER_CONTAINER_COMMAND_H_
