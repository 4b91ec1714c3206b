#include <CLI/CLI.hpp>
#include <memory>

#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/follow.h"
#include "client/cli/parse.h"

namespace lockstep {
namespace {

struct Options {
  FollowOptions follow;
  std::string timeout;
};

StatusOr<int> Run(const Cli& cli, Options options) {
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

void AddJobsWait(CLI::App* parent, Cli* cli) {
  auto options = std::make_shared<Options>();
  CLI::App* const app = AddCommand(
      parent, "wait", "Follow a job to its end and return its exit code",
      "  lockstep jobs wait fashion\n"
      "  lockstep jobs wait fashion --timeout 10m --quiet && echo trained\n"
      "\nExit code: 0 for SUCCEEDED, for FAILED that of the first rank that"
      "\nfailed (else 1), 1 for CANCELLED, 124 when the time was over, 130"
      "\nafter Ctrl-C, which leaves the job running.");
  app->add_option("name", options->follow.job,
                  "The job, or how its name begins")
      ->type_name("JOB")
      ->required();
  app->add_option("--timeout", options->timeout,
                  "Give up after so long, as 10m (default: never)")
      ->type_name("DURATION");
  app->add_flag("-q,--quiet", options->follow.quiet,
                "Nothing on the way, only the end");
  AddOutputOption(app, cli);
  AddConnectionOptions(app, cli);
  app->callback([=] { cli->run = [=] { return Run(*cli, *options); }; });
}

}  // namespace lockstep
