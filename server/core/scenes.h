// For the tests of this folder: jobs in each state, and hosts.
#ifndef LOCKSTEP_SERVER_CORE_SCENES_H_
#define LOCKSTEP_SERVER_CORE_SCENES_H_

#include <string>
#include <vector>

#include "server/core/scheduler.h"
#include "server/core/testing.h"

namespace lockstep::server {

// ---- A job of two ranks, with worker 0 on b, in each state ----
Scene Queued();
Scene Preparing();
Scene Forming();
Scene Running();
// RUNNING, and being stopped because rank 1 failed.
Scene Failing();

// A chief and a parameter server.
JobSpec ParameterServers();

// A READY host with nothing on it.
inline constexpr int64_t kGiB = int64_t{1} << 30;
HostCapacity Host(const NodeName& node, double cpus, int64_t gib = 64,
                  const std::vector<std::string>& gpus = {});
// A native job whose tasks need equal resources.
JobSpec Gang(int32_t tasks, Resources each);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_SCENES_H_
