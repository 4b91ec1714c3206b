// One daemon of a local cluster: how it is started, what it says of itself.
#ifndef LOCKSTEP_CLIENT_LOCAL_DAEMON_H_
#define LOCKSTEP_CLIENT_LOCAL_DAEMON_H_

#include <string>
#include <string_view>
#include <vector>

#include "client/local/layout.h"
#include "client/local/records.h"
#include "common/base/status.h"
#include "common/os/process.h"

namespace lockstep {

// "coordinator", "worker-0", ... Pure.
std::vector<std::string> DaemonNames(const ClusterRecord& record);
// The command line, without the program. Pure. InvalidArgument when `daemon`
// is none of the cluster's.
StatusOr<std::vector<std::string>> DaemonArguments(const LocalLayout& layout,
                                                   const ClusterRecord& record,
                                                   std::string_view daemon);
// The environment: `env` with `bin_dir` first in PATH, so that jobs find
// lockstep-train, and with the worker's own GPUs where it has some. Pure.
std::vector<std::string> DaemonEnvironment(std::vector<std::string> env,
                                           const std::string& bin_dir,
                                           const ClusterRecord& record,
                                           std::string_view daemon);
// Ports that it listens on. Pure.
std::vector<uint16_t> DaemonPorts(const ClusterRecord& record,
                                  std::string_view daemon);
// "lockstep-coordinator" or "lockstep-worker".
std::string DaemonProgram(std::string_view daemon);

// Starts it in a session of its own, its output appended to its log.
StatusOr<Process> SpawnDaemon(const LocalLayout& layout,
                              const ClusterRecord& record,
                              const std::string& bin_dir,
                              const std::vector<std::string>& extra_arguments,
                              std::string_view daemon);

// The pid in endpoint.json, or 0 where there is none yet.
pid_t EndpointPid(const LocalLayout& layout, std::string_view daemon);

// The last line of its log that is not empty; empty where there is none.
std::string LastLogLine(const LocalLayout& layout, std::string_view daemon);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_LOCAL_DAEMON_H_
