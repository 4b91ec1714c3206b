// What each part of the daemon may need to know about the daemon and its node.
#ifndef LOCKSTEP_WORKER_AGENT_HOST_DAEMON_SETUP_H_
#define LOCKSTEP_WORKER_AGENT_HOST_DAEMON_SETUP_H_

#include <map>
#include <optional>
#include <string>

#include "common/model/node.h"
#include "worker/agent/host/task_user.h"

namespace lockstep {

struct DaemonSetup {
  // With the incarnation that is on disk already.
  NodeInfo node;
  std::string dir;          // State that survives a restart.
  std::string runtime_dir;  // Sockets; short.
  // Absent: ranks run as the daemon.
  std::optional<TaskUser> user;
  // The daemon's own; an allow-list of it is inherited by ranks.
  std::map<std::string, std::string> environment;
  // DirectoryMark of `dir`; Agent::Create fills it in.
  std::string mark;
};

// Returns the owner of files made for ranks: `user`, or this process.
uid_t OwnerId(const std::optional<TaskUser>& user);
gid_t OwnerGroup(const std::optional<TaskUser>& user);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_HOST_DAEMON_SETUP_H_
