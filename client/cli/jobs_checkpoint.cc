#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "client/cli/cli.h"

namespace lockstep {
namespace {

StatusOr<int> Run(const Cli& cli, const std::string& name) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Directive directive,
                            client->RequestCheckpoint(name));
  *cli.env->out << fmt::format(
      "checkpoint {} of {} is asked for; `lockstep jobs describe {}` shows it "
      "when it is complete\n",
      directive.id(), name, name);
  return 0;
}

}  // namespace

void AddJobsCheckpoint(CLI::App* parent, Cli* cli) {
  auto name = std::make_shared<std::string>();
  CLI::App* const app =
      AddCommand(parent, "checkpoint",
                 "Have a running native job save a checkpoint at its next step",
                 "  lockstep jobs checkpoint fashion");
  app->add_option("name", *name, "The job")->required();
  AddConnectionOptions(app, cli);
  app->callback([=] { cli->run = [=] { return Run(*cli, *name); }; });
}

}  // namespace lockstep
