#include <algorithm>
#include <memory>

#include "client/cli/cli.h"
#include "client/cli/describe.h"
#include "client/cli/listing.h"

namespace lockstep::cli {
namespace {

StatusOr<int> RunListNodes(const Cli& cli,
                           const std::vector<std::string>& states) {
  std::vector<v1::NodeState> wanted;
  for (const std::string& state : states) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const int index,
        ParseState(state, StateNames<v1::NodeState>(v1::NodeState_MAX)));
    wanted.push_back(static_cast<v1::NodeState>(index));
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

Command NodesListCommand(Cli* cli) {
  auto states = std::make_shared<std::vector<std::string>>();
  Command command =
      LeafCommand("list", "List nodes with their total and allocated resources",
                  "  lockstep nodes list\n"
                  "  lockstep nodes list -o wide --state draining,drained\n"
                  "  lockstep nodes list --columns NAME,STATE --no-headers");
  command.Add("--state STATES", states.get(),
              "Only nodes in these states, as draining,drained", SplitAt(','));
  AddListOptions(&command, cli);
  AddConnectionOptions(&command, cli);
  command.run = [=] { return RunListNodes(*cli, *states); };
  return command;
}

}  // namespace lockstep::cli
