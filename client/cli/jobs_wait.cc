#include <memory>

#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/follow.h"
#include "client/cli/parse.h"

namespace lockstep::cli {
namespace {

struct WaitFlags {
  FollowOptions follow;
  std::string timeout;
};

StatusOr<int> RunWait(const Cli& cli, WaitFlags options) {
  if (!options.timeout.empty()) {
    const auto timeout = ParseDuration(options.timeout);
    if (!timeout.ok()) return Annotate(timeout.status(), "--timeout");
    options.follow.timeout = *timeout;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(options.follow.job,
                            FindJob(client.get(), options.follow.job));
  return FollowToEnd(cli, client.get(), options.follow);
}

}  // namespace

Command JobsWaitCommand(Cli* cli) {
  const auto options = std::make_shared<WaitFlags>();
  Command command = LeafCommand(
      "wait", "Follow a job to its end and return its exit code",
      "  lockstep jobs wait fashion\n"
      "  lockstep jobs wait fashion --timeout 10m --quiet && echo trained\n\n"
      "Exit code: 0 for SUCCEEDED; for FAILED that of the first rank that\n"
      "failed (or 1), 1 for CANCELLED, 124 after the timeout, 130 after\n"
      "Ctrl-C, which leaves the job running.");
  AddJobArgument(&command, &options->follow.job);
  command.Add("--timeout DURATION", &options->timeout,
              "Stop waiting after this time, as 10m (default: never)");
  command.Add("-q,--quiet", &options->follow.quiet, "Print only the end");
  AddRequestOptions(&command, cli);
  command.run = [=] { return RunWait(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
