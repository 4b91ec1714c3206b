#include <memory>

#include "client/cli/local_common.h"

namespace lockstep::cli {
namespace {

StatusOr<int> ShowLocalStatus(const Cli& cli, const std::string& dir) {
  LocalClusterOptions options;
  LOCKSTEP_ASSIGN_OR_RETURN(options.dir, LocalDir(dir, "", *cli.env));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto cluster, LocalCluster::Open(options));
  LOCKSTEP_RETURN_IF_ERROR(WriteDaemons(cli, *cluster));
  return 0;
}

}  // namespace

Command LocalStatusCommand(Cli* cli) {
  auto dir = std::make_shared<std::string>();
  Command command = LeafCommand(
      "status", "Show the local cluster's daemons: pid, addresses, folder",
      "  lockstep local status\n"
      "  lockstep local status -o json | jq -r '.daemons[0].grpc'\n"
      "\nReturns 0 if there is a cluster, running or not, otherwise 3.");
  AddLocalDirOption(&command, dir.get());
  AddOutputOption(&command, cli);
  command.run = [=] { return ShowLocalStatus(*cli, *dir); };
  return command;
}

}  // namespace lockstep::cli
