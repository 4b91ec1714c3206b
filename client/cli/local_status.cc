#include <CLI/CLI.hpp>
#include <memory>

#include "client/cli/local_common.h"

namespace lockstep {
namespace {

StatusOr<int> Run(const Cli& cli, const std::string& dir) {
  LocalClusterOptions options;
  LOCKSTEP_ASSIGN_OR_RETURN(options.dir, LocalDir(dir, "", *cli.env));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto cluster, LocalCluster::Open(options));
  LOCKSTEP_RETURN_IF_ERROR(WriteDaemons(cli, *cluster));
  return 0;
}

}  // namespace

void AddLocalStatus(CLI::App* parent, Cli* cli) {
  auto dir = std::make_shared<std::string>();
  CLI::App* const app = AddCommand(
      parent, "status", "The local cluster's daemons: pid, addresses, folder",
      "  lockstep local status\n"
      "  lockstep local status -o json | jq -r '.daemons[0].grpc'\n"
      "\nExit code 0 where there is a cluster, running or not; else 3.");
  AddLocalDirOption(app, dir.get());
  AddOutputOption(app, cli);
  app->callback([=] { cli->run = [=] { return Run(*cli, *dir); }; });
}

}  // namespace lockstep
