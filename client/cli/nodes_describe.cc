#include <memory>

#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/node_output.h"

namespace lockstep::cli {
namespace {

StatusOr<int> DescribeNode(const Cli& cli, const std::string& text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindNode(client.get(), text));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Node node, client->GetNode(name));
  LOCKSTEP_RETURN_IF_ERROR(WriteNode(cli, node));
  return 0;
}

}  // namespace

Command NodesDescribeCommand(Cli* cli) {
  const auto name = std::make_shared<std::string>();
  Command command = LeafCommand(
      "describe", "Show a node: state, cause, resources, jobs and events",
      "  lockstep nodes describe worker-0");
  AddNodeArgument(&command, name.get());
  AddRequestOptions(&command, cli);
  command.run = [=] { return DescribeNode(*cli, *name); };
  return command;
}

}  // namespace lockstep::cli
