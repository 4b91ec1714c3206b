// What the `lockstep local` commands share.
#ifndef LOCKSTEP_CLIENT_CLI_LOCAL_COMMON_H_
#define LOCKSTEP_CLIENT_CLI_LOCAL_COMMON_H_

#include <string>
#include <vector>

#include "client/cli/cli.h"
#include "client/local/local_cluster.h"

namespace lockstep {

// --dir of all three.
void AddLocalDirOption(Command* command, std::string* dir);

// The context that `lockstep local up` writes.
inline constexpr char kLocalContext[] = "local";

// `dir`, or that of `context` (empty: of the current one, else of
// kLocalContext), or $XDG_DATA_HOME/lockstep/local, or
// ~/.local/share/lockstep/local.
// FailedPrecondition when neither variable is set.
StatusOr<std::string> LocalDir(const std::string& dir,
                               const std::string& context,
                               const CliEnvironment& env);

// The daemons, one a line.
std::string FormatDaemons(const std::vector<DaemonStatus>& daemons,
                          const Style& style);
// {"directory", "running", "daemons": [{"name", "running", "pid", "grpc",
// "http", "directory", "log"}]}; grpc of the coordinator only.
std::string DaemonsJson(const std::string& dir,
                        const std::vector<DaemonStatus>& daemons);
Status WriteDaemons(const Cli& cli, const LocalCluster& cluster);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_LOCAL_COMMON_H_
