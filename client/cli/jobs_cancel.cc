#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/follow.h"

namespace lockstep {
namespace {

struct Options {
  std::vector<std::string> names;
  bool wait = false;
};

StatusOr<int> Run(const Cli& cli, const Options& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  for (const std::string& name : options.names) {
    LOCKSTEP_ASSIGN_OR_RETURN(v1::Job job, client->CancelJob(name));
    if (options.wait) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          job, client->WaitJob(name, std::chrono::minutes(2), nullptr));
    }
    if (cli.output == "table" || cli.output == "wide") {
      *cli.env->out << fmt::format("{} {}\n", name,
                                   cli.OutStyle().State(job.state()));
    } else {
      LOCKSTEP_RETURN_IF_ERROR(WriteJob(cli, job));
    }
  }
  return 0;
}

}  // namespace

void AddJobsCancel(CLI::App* parent, Cli* cli) {
  auto options = std::make_shared<Options>();
  CLI::App* const app = AddCommand(
      parent, "cancel", "End jobs: SIGTERM to their ranks, 30 s later SIGKILL",
      "  lockstep jobs cancel fashion\n"
      "  lockstep jobs cancel fashion other --wait\n"
      "\nA job that has ended already stays as it is.");
  app->add_option("name", options->names, "The jobs")->required();
  app->add_flag("--wait", options->wait,
                "Return when they have ended, at most 2 minutes each");
  AddOutputOption(app, cli);
  AddConnectionOptions(app, cli);
  app->callback([=] { cli->run = [=] { return Run(*cli, *options); }; });
}

}  // namespace lockstep
