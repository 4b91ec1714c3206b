#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <memory>

#include "client/cli/cli.h"
#include "client/cli/describe.h"
#include "client/cli/listing.h"

namespace lockstep {
namespace {

StatusOr<v1::NodeState> ParseState(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(c));
  for (int i = 1; i <= v1::NodeState_MAX; ++i) {
    if (Text(static_cast<v1::NodeState>(i)) == text) {
      return static_cast<v1::NodeState>(i);
    }
  }
  return InvalidArgument(
      "--state: there is no {}; there are ready, unknown, lost, draining, "
      "drained and quarantined",
      text);
}

StatusOr<int> Run(const Cli& cli, const std::vector<std::string>& states) {
  std::vector<v1::NodeState> wanted;
  for (const std::string& state : states) {
    LOCKSTEP_ASSIGN_OR_RETURN(wanted.emplace_back(), ParseState(state));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<v1::Node> nodes, client->ListNodes());
  if (!wanted.empty()) {
    std::erase_if(nodes, [&](const v1::Node& node) {
      return std::find(wanted.begin(), wanted.end(), node.state()) ==
             wanted.end();
    });
  }
  v1::ListNodesResponse all;
  Listing listing;
  listing.collection = "nodes";
  listing.all = &all;
  for (const v1::Node& node : nodes) {
    *all.add_nodes() = node;
    listing.items.push_back(&node);
    listing.names.push_back(node.name());
  }
  listing.table = [&](bool wide, const Style& style) {
    return NodesTable(nodes, wide, cli.env->clock->Now().wall, style);
  };
  LOCKSTEP_RETURN_IF_ERROR(WriteListing(cli, listing));
  return 0;
}

}  // namespace

void AddNodesList(CLI::App* parent, Cli* cli) {
  auto states = std::make_shared<std::vector<std::string>>();
  CLI::App* const app = AddCommand(
      parent, "list", "Nodes: what they have and what of it is taken",
      "  lockstep nodes list\n"
      "  lockstep nodes list -o wide --state draining,drained\n"
      "  lockstep nodes list --columns NAME,STATE --no-headers");
  app->add_option("--state", *states,
                  "Only in these states, as draining,drained")
      ->delimiter(',')
      ->type_name("STATES");
  AddListOptions(app, cli);
  AddConnectionOptions(app, cli);
  app->callback([=] { cli->run = [=] { return Run(*cli, *states); }; });
}

}  // namespace lockstep
