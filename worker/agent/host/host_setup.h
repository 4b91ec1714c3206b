// Reads the facts about the host and the user that a worker daemon needs before
// it starts.
#ifndef LOCKSTEP_WORKER_AGENT_HOST_HOST_SETUP_H_
#define LOCKSTEP_WORKER_AGENT_HOST_HOST_SETUP_H_

#include <string>

#include "common/base/host_port.h"
#include "common/base/status.h"
#include "worker/agent/host/task_user.h"

namespace lockstep::worker::agent {

// Returns `flag`, else lockstep-shim next to this program, else the installed
// ../libexec/lockstep/lockstep-shim. NotFound if none exists.
StatusOr<std::string> ShimPath(const std::string& flag);

// Returns the ids of user `name`. NotFound; InvalidArgument: it is root;
// PermissionDenied: this process is neither root nor that user.
StatusOr<TaskUser> FindUser(const std::string& name);

// Returns the address of this host on the route to `target`.
StatusOr<std::string> AddressTowards(const HostPort& target);

std::string HostName();
// Converts "Host_A.lan" to "host-a". The result may be invalid: "" or "-".
std::string NodeNameOf(const std::string& hostname);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_HOST_HOST_SETUP_H_
