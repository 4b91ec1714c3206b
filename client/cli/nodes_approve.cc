#include <fmt/format.h>

#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/describe.h"
#include "client/cli/find.h"
#include "client/cli/node_output.h"

namespace lockstep::cli {
namespace {

StatusOr<int> Approve(const Cli& cli, const std::string& text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindNode(client.get(), text));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Node before, client->GetNode(name));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Node node, client->ApproveNode(name));
  *cli.env->err << (before.has_offered()
                        ? fmt::format("node {}: {} may be used, before {}\n",
                                      name, Text(node.capacity()),
                                      Text(before.capacity()))
                        : fmt::format("node {}: no approval was pending\n",
                                      name));
  LOCKSTEP_RETURN_IF_ERROR(WriteNodeState(cli, node));
  return 0;
}

}  // namespace

Command NodesApproveCommand(Cli* cli) {
  const auto name = std::make_shared<std::string>();
  Command command = LeafCommand(
      "approve", "Approve all resources that a node offers",
      "  lockstep nodes describe host-a      # what it offers\n"
      "  lockstep nodes approve host-a\n\n"
      "A new node's offer is accepted up to the site's limit\n"
      "(max_node_cpus, max_node_memory, max_node_gpus in coordinator.yaml).\n"
      "What a node offers beyond that, or beyond its first offer, is not\n"
      "used before approval. Approve what the host really has: jobs and\n"
      "their secrets go where there is room.");
  AddNodeArgument(&command, name.get());
  AddRequestOptions(&command, cli);
  command.run = [=] { return Approve(*cli, *name); };
  return command;
}

}  // namespace lockstep::cli
