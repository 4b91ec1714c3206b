// For the tests of this folder: jobs on their way, and hosts.
#ifndef LOCKSTEP_SERVER_CORE_SCENES_H_
#define LOCKSTEP_SERVER_CORE_SCENES_H_

#include <string>
#include <vector>

#include "server/core/scheduler.h"
#include "server/core/testing.h"

namespace lockstep {

// ---- A job of two ranks, of which worker 0 is on b, on its way ----
Scene Queued();
Scene Preparing();
Scene Forming();
Scene Running();
// RUNNING, and told to stop as rank 1 failed.
Scene Failing();

// A chief and a parameter server.
JobSpec ParameterServers();

// A READY host with nothing on it.
inline constexpr int64_t kGiB = int64_t{1} << 30;
HostCapacity Host(const NodeName& node, double cpus, int64_t gib = 64,
                  const std::vector<std::string>& gpus = {});
// A native job whose tasks all need the same.
JobSpec Gang(int32_t tasks, Resources each);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_SCENES_H_
