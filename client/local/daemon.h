// One daemon of a local cluster: its start and its endpoint.
#ifndef LOCKSTEP_CLIENT_LOCAL_DAEMON_H_
#define LOCKSTEP_CLIENT_LOCAL_DAEMON_H_

#include <string>
#include <string_view>
#include <vector>

#include "client/local/layout.h"
#include "client/local/records.h"
#include "common/base/status.h"
#include "common/os/process.h"

namespace lockstep::cli {

// "coordinator", "worker-0", ... Pure.
std::vector<std::string> DaemonNames(const ClusterRecord& record);
// Returns the arguments without the program. Pure. InvalidArgument if the
// cluster has no such daemon.
StatusOr<std::vector<std::string>> DaemonArguments(const LocalLayout& layout,
                                                   const ClusterRecord& record,
                                                   std::string_view daemon);
// Returns `env` with `bin_dir` first in PATH, so that jobs find lockstep-train,
// and with the worker's own GPUs if it has any. Pure.
std::vector<std::string> DaemonEnvironment(std::vector<std::string> env,
                                           const std::string& bin_dir,
                                           const ClusterRecord& record,
                                           std::string_view daemon);
// Returns its listening ports. Pure.
std::vector<uint16_t> DaemonPorts(const ClusterRecord& record,
                                  std::string_view daemon);
// "lockstep-coordinator" or "lockstep-worker".
std::string DaemonProgram(std::string_view daemon);

// Starts it in its own session, with output appended to its log.
StatusOr<Process> SpawnDaemon(const LocalLayout& layout,
                              const ClusterRecord& record,
                              const std::string& bin_dir,
                              const std::vector<std::string>& extra_arguments,
                              std::string_view daemon);

// Returns the pid in endpoint.json, or 0.
pid_t EndpointPid(const LocalLayout& layout, std::string_view daemon);

// Returns the last non-empty line of its log, or "".
std::string LastLogLine(const LocalLayout& layout, std::string_view daemon);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LOCAL_DAEMON_H_
