#include <CLI/CLI.hpp>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/describe.h"

namespace lockstep {
namespace {

StatusOr<int> Run(const Cli& cli) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<v1::Node> nodes,
                            client->ListNodes());
  std::ostream& out = *cli.env->out;
  v1::ListNodesResponse all;
  for (const v1::Node& node : nodes) {
    if (output == Output::kName) out << node.name() << "\n";
    *all.add_nodes() = node;
  }
  if (output == Output::kJson) out << ToJson(all);
  if (output == Output::kYaml) out << ToYaml(all);
  if (output == Output::kTable || output == Output::kWide) {
    out << FormatNodes(nodes, output == Output::kWide,
                       cli.env->clock->Now().wall, cli.OutStyle());
  }
  return 0;
}

}  // namespace

void AddNodesList(CLI::App* parent, Cli* cli) {
  CLI::App* const app = AddCommand(
      parent, "list", "Nodes: what they have and what of it is taken",
      "  lockstep nodes list\n"
      "  lockstep nodes list -o wide");
  AddOutputOption(app, cli);
  AddConnectionOptions(app, cli);
  app->callback([=] { cli->run = [=] { return Run(*cli); }; });
}

}  // namespace lockstep
