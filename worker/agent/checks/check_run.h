// Checks GPUs by lockstep-gpu-check: a process for each, at once, and then one
// for each two of them that passed, which all-reduce. A process that takes too
// long is killed: its GPU has failed.
//
// Blocks. Safe from any thread.
#ifndef LOCKSTEP_WORKER_AGENT_CHECKS_CHECK_RUN_H_
#define LOCKSTEP_WORKER_AGENT_CHECKS_CHECK_RUN_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/model/gpu_check.h"

namespace lockstep::worker::agent {

struct GpuCheckTarget {
  int32_t index = 0;
  std::string uuid;
};

struct GpuCheckPlan {
  // A path.
  std::string program;
  // For the processes; CUDA_VISIBLE_DEVICES is set for each.
  std::vector<std::string> environment;
  Duration within{};
  std::vector<GpuCheckTarget> gpus;
  // For the all-reduce of a single one.
  std::optional<GpuCheckTarget> partner;
};

// Pairs for the all-reduce: neighbours in `passed`, and the last of an odd
// number with the first, or `partner` if it is alone. Pure.
std::vector<std::pair<GpuCheckTarget, GpuCheckTarget>> PairsOf(
    const std::vector<GpuCheckTarget>& passed,
    const std::optional<GpuCheckTarget>& partner);

// Ends early, with Cancelled, once `cancelled` is set. Unimplemented: no GPU
// can be checked here. Times are those of the clock of this host.
GpuCheckAnswer RunChecks(const GpuCheckPlan& plan,
                         const std::atomic<bool>& cancelled);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_CHECKS_CHECK_RUN_H_
