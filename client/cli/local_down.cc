#include <fmt/format.h>

#include <memory>
#include <ostream>

#include "client/cli/local_common.h"

namespace lockstep::cli {
namespace {

struct DownFlags {
  std::string dir;
  bool clean = false;
  bool yes = false;
};

StatusOr<int> RunDown(const Cli& cli, const DownFlags& options) {
  CliEnvironment* const env = cli.env;
  LocalClusterOptions cluster_options;
  LOCKSTEP_ASSIGN_OR_RETURN(cluster_options.dir,
                            LocalDir(options.dir, "", *env));
  auto cluster = LocalCluster::Open(cluster_options);
  if (cluster.status().code() == StatusCode::kNotFound) {
    *env->err << Message(cluster.status()) << "\n";
    return 0;
  }
  if (!cluster.ok()) return cluster.status();
  if (options.clean) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const bool go,
        cli.Confirm(fmt::format("Remove the cluster in {} with all its jobs "
                                "and logs",
                                cluster_options.dir),
                    options.yes));
    if (!go) return kExitError;
  }
  DownOptions down;
  down.clean = options.clean;
  const std::string address = (*cluster)->grpc_address();
  LOCKSTEP_ASSIGN_OR_RETURN(const DownResult result, (*cluster)->Down(down));
  if (result.daemons == 0) {
    *env->err << fmt::format("nothing was running in {}", cluster_options.dir);
  } else {
    *env->err << "stopped " << Count(result.daemons, "daemon");
  }
  if (result.cancelled_jobs > 0) {
    *env->err << ", cancelled " << Count(result.cancelled_jobs, "job");
  }
  if (result.killed_tasks > 0) {
    *env->err << ", killed " << Count(result.killed_tasks, "rank");
  }
  *env->err << "\n";
  if (options.clean) {
    LOCKSTEP_RETURN_IF_ERROR(RemoveContexts(*env, address));
    *env->err << fmt::format("removed {}\n", cluster_options.dir);
  }
  return 0;
}

}  // namespace

Command LocalDownCommand(Cli* cli) {
  const auto options = std::make_shared<DownFlags>();
  Command command = LeafCommand(
      "down", "Cancel the local cluster's jobs and stop its daemons",
      "  lockstep local down\n"
      "  lockstep local down --clean --yes\n"
      "\nJobs get 15 s to end, daemons 10 s; then they are killed.");
  AddLocalDirOption(&command, &options->dir);
  command.Add("--clean", &options->clean,
              "Also remove its jobs, logs, certificates and context");
  command.Add("-y,--yes", &options->yes, "Do not ask");
  command.run = [=] { return RunDown(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
