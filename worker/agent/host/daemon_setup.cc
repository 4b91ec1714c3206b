#include "worker/agent/host/daemon_setup.h"

#include <unistd.h>

namespace lockstep::worker::agent {

uid_t OwnerId(const std::optional<TaskUser>& user) {
  return user ? user->uid : geteuid();
}

gid_t OwnerGroup(const std::optional<TaskUser>& user) {
  return user ? user->gid : getegid();
}

}  // namespace lockstep::worker::agent
