// Properties of the daemon and its node, shared by all parts of the daemon.
#ifndef LOCKSTEP_WORKER_AGENT_HOST_DAEMON_SETUP_H_
#define LOCKSTEP_WORKER_AGENT_HOST_DAEMON_SETUP_H_

#include <map>
#include <optional>
#include <string>

#include "common/model/node.h"
#include "worker/agent/host/task_user.h"

namespace lockstep::worker::agent {

struct DaemonSetup {
  // Its incarnation is already on disk.
  NodeInfo node;
  std::string dir;          // State that survives a restart.
  std::string runtime_dir;  // Sockets; short.
  // Absent: ranks run as the daemon.
  std::optional<TaskUser> user;
  // The daemon's own; ranks inherit an allow-list of it.
  std::map<std::string, std::string> environment;
  // DirectoryMark of `dir`; Agent::Create fills it in.
  std::string mark;
};

// Returns the owner of files made for ranks: `user`, or this process.
uid_t OwnerId(const std::optional<TaskUser>& user);
gid_t OwnerGroup(const std::optional<TaskUser>& user);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_HOST_DAEMON_SETUP_H_
