// Socket files of killed shims. A shim removes its own, unless it is killed.
#ifndef LOCKSTEP_WORKER_AGENT_HOST_DEAD_SOCKETS_H_
#define LOCKSTEP_WORKER_AGENT_HOST_DEAD_SOCKETS_H_

#include <string>

#include "common/base/clock.h"

namespace lockstep::worker::agent {

// Removes the socket at `path` if it has no listener. Returns whether it did.
bool RemoveDeadSocket(const std::string& path);

// Does the same for all shim sockets in `directory` (16 hexadecimal digits and
// ".sock") that are older than kYoungSocket at `now`: other daemons may share
// the directory, and a shim creates its socket shortly before it listens.
// Returns how many it removed.
inline constexpr Duration kYoungSocket = std::chrono::seconds(10);
int RemoveDeadSockets(const std::string& directory, WallTime now);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_HOST_DEAD_SOCKETS_H_
