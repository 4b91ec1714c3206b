// Shared code of the `lockstep local` commands.
#ifndef LOCKSTEP_CLIENT_CLI_LOCAL_COMMON_H_
#define LOCKSTEP_CLIENT_CLI_LOCAL_COMMON_H_

#include <string>
#include <vector>

#include "client/cli/cli.h"
#include "client/local/local_cluster.h"

namespace lockstep::cli {

// Adds --dir, which all three take.
void AddLocalDirOption(Command* command, std::string* dir);

// The context written by `lockstep local up`.
inline constexpr char kLocalContext[] = "local";

// Returns `dir`, or the directory of `context` (empty for the current one, then
// kLocalContext), or $XDG_DATA_HOME/lockstep/local, or
// ~/.local/share/lockstep/local. FailedPrecondition if neither variable is set.
StatusOr<std::string> LocalDir(const std::string& dir,
                               const std::string& context,
                               const CliEnvironment& env);

// Lists the daemons, one per line.
std::string FormatDaemons(const std::vector<DaemonStatus>& daemons,
                          const Style& style);
// {"directory", "running", "daemons": [{"name", "running", "pid", "grpc",
// "http", "directory", "log"}]}. Only the coordinator has grpc.
std::string DaemonsJson(const std::string& dir,
                        const std::vector<DaemonStatus>& daemons);
Status WriteDaemons(const Cli& cli, const LocalCluster& cluster);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_LOCAL_COMMON_H_
