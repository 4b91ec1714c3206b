// What a worker daemon finds out about its host and user before it starts.
#ifndef LOCKSTEP_WORKER_AGENT_HOST_HOST_SETUP_H_
#define LOCKSTEP_WORKER_AGENT_HOST_HOST_SETUP_H_

#include <string>

#include "common/base/host_port.h"
#include "common/base/status.h"
#include "worker/agent/host/task_user.h"

namespace lockstep {

// `flag`, or lockstep-shim beside this program, or as it is installed, in
// ../libexec/lockstep. NotFound where there is none.
StatusOr<std::string> ShimPath(const std::string& flag);

// The numbers of user `name`. NotFound; InvalidArgument: it is root;
// PermissionDenied: we are not root and not that user.
StatusOr<TaskUser> FindUser(const std::string& name);

// The address of this host on the way to `target`.
StatusOr<std::string> AddressTowards(const HostPort& target);

std::string HostName();
// "Host_A.lan" -> "host-a". May be no name still: "" or "-".
std::string NodeNameOf(const std::string& hostname);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_HOST_HOST_SETUP_H_
