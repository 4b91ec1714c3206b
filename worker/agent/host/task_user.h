// The user that ranks run as.
#ifndef LOCKSTEP_WORKER_AGENT_HOST_TASK_USER_H_
#define LOCKSTEP_WORKER_AGENT_HOST_TASK_USER_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep::worker::agent {

// Numbers, since shims do not ask the name service.
struct TaskUser {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
  std::string home;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_HOST_TASK_USER_H_
