// Jobs for which this command holds the terminal: `submit --tty`, and those
// that it starts to serve something.
#ifndef LOCKSTEP_CLIENT_CLI_INTERACTIVE_H_
#define LOCKSTEP_CLIENT_CLI_INTERACTIVE_H_

#include <string>
#include <vector>

#include "client/cli/cli.h"
#include "client/cli/session_io.h"
#include "common/base/status.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep::cli {

// Idle interactive jobs end after this time, unless they or --idle-stop say
// otherwise.
inline constexpr int64_t kInteractiveIdleSeconds = 30 * 60;

// Turns a job of one rank into an interactive one and returns its program: the
// rank waits, and the program runs in a session.
// InvalidArgument: it has several ranks, or is not a program.
StatusOr<std::vector<std::string>> MakeInteractive(v1::JobSpec* spec);

// Waits until rank 0 of the job runs, and tells why it does not yet. Returns
// the job; its state is final if it has ended. A signal of `held` is Cancelled.
StatusOr<v1::Job> AwaitRunning(const Cli& cli, Client* client,
                               const std::string& name, HeldSignals* held);

// Runs `program` in the submitted job with this terminal, then ends the job.
// Returns the program's exit code.
StatusOr<int> RunInteractive(const Cli& cli, Client* client,
                             const std::string& name,
                             const std::vector<std::string>& program,
                             HeldSignals* held);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_INTERACTIVE_H_
