#include <CLI/CLI.hpp>
#include <memory>

#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/node_output.h"

namespace lockstep {
namespace {

StatusOr<int> Run(const Cli& cli, const std::string& text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindNode(client.get(), text));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Node node, client->GetNode(name));
  LOCKSTEP_RETURN_IF_ERROR(WriteNode(cli, node));
  return 0;
}

}  // namespace

void AddNodesDescribe(CLI::App* parent, Cli* cli) {
  auto name = std::make_shared<std::string>();
  CLI::App* const app = AddCommand(
      parent, "describe",
      "A node: its state and why, what it has, what runs there, what happened",
      "  lockstep nodes describe worker-0");
  app->add_option("node", *name, "The node, or how its name begins")
      ->type_name("NODE")
      ->required();
  AddOutputOption(app, cli);
  AddConnectionOptions(app, cli);
  app->callback([=] { cli->run = [=] { return Run(*cli, *name); }; });
}

}  // namespace lockstep
