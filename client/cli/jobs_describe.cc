#include <CLI/CLI.hpp>
#include <memory>

#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/follow.h"

namespace lockstep {
namespace {

StatusOr<int> Run(const Cli& cli, const std::string& text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindJob(client.get(), text));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job, client->GetJob(name));
  LOCKSTEP_RETURN_IF_ERROR(WriteJob(cli, job));
  return 0;
}

}  // namespace

void AddJobsDescribe(CLI::App* parent, Cli* cli) {
  auto name = std::make_shared<std::string>();
  CLI::App* const app = AddCommand(
      parent, "describe",
      "A job: its state and why, where it runs, how fast, what it uses, what "
      "happened",
      "  lockstep jobs describe fashion\n"
      "  lockstep jobs describe fashion -o json | jq .state");
  app->add_option("name", *name, "The job, or how its name begins")
      ->type_name("JOB")
      ->required();
  AddOutputOption(app, cli);
  AddConnectionOptions(app, cli);
  app->callback([=] { cli->run = [=] { return Run(*cli, *name); }; });
}

}  // namespace lockstep
