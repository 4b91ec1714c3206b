#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/describe.h"

namespace lockstep {
namespace {

StatusOr<int> Run(const Cli& cli, const std::string& name) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Node node, client->GetNode(name));
  std::ostream& out = *cli.env->out;
  if (output == Output::kJson) {
    out << ToJson(node);
  } else if (output == Output::kYaml) {
    out << ToYaml(node);
  } else if (output == Output::kName) {
    out << node.name() << "\n";
  } else {
    out << FormatNode(node, cli.env->clock->Now().wall, cli.OutStyle());
  }
  return 0;
}

}  // namespace

void AddNodesDescribe(CLI::App* parent, Cli* cli) {
  auto name = std::make_shared<std::string>();
  CLI::App* const app = AddCommand(
      parent, "describe", "A node: its state, what it has, what runs there",
      "  lockstep nodes describe worker-0");
  app->add_option("name", *name, "The node")->required();
  AddOutputOption(app, cli);
  AddConnectionOptions(app, cli);
  app->callback([=] { cli->run = [=] { return Run(*cli, *name); }; });
}

}  // namespace lockstep
