// Readings of the host and its GPUs for heartbeats: use of CPU and memory,
// readings and errors of GPUs, which of them are not free after their rank's
// end, and whether the disk is full.
//
// Belongs to the event loop's thread. Reads /proc, and keeps the baselines of
// GPUs in DIR/gpu-baselines.
#ifndef LOCKSTEP_WORKER_AGENT_READINGS_NODE_SAMPLER_H_
#define LOCKSTEP_WORKER_AGENT_READINGS_NODE_SAMPLER_H_

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/node.h"
#include "common/os/procfs.h"
#include "worker/agent/host/daemon_setup.h"
#include "worker/agent/host/disk_space.h"
#include "worker/agent/readings/gpu_reclaims.h"
#include "worker/devices/gpu_sampler.h"

namespace lockstep::worker::agent {

class NodeSampler {
 public:
  // Pointers are borrowed; `gpus` may be null. `disk_space` returns the space
  // of a directory's file system.
  NodeSampler(
      const DaemonSetup* setup, const devices::GpuSampler* gpus,
      DiskFloor disk_floor,
      std::function<StatusOr<DiskSpace>(const std::string&)> disk_space);

  // Returns the available fraction of the host's memory, 0..1; absent if it
  // could not be read.
  std::optional<double> SampleHost();
  // Returns false if the GPUs are still unknown.
  bool SampleGpus(Time now);
  // Records which GPUs ranks hold, by index, and for which jobs.
  void HoldGpus(const std::map<int32_t, JobName>& held, Time now);
  // Whether one of the GPUs was released and has not been read since.
  bool AwaitsGpus(const std::set<int32_t>& gpus) const {
    return gpus_ != nullptr && reclaims_.Awaits(gpus);
  }
  void SetStuck(std::vector<HeldProcess> stuck) {
    readings_.stuck_processes = std::move(stuck);
  }
  // Logs when the disk becomes full and when it has enough space again.
  void CheckDisk();
  bool disk_is_full() const { return disk_is_full_; }

  const NodeReadings& readings() const { return readings_; }
  // Returns the readings; GPU errors in them count as reported.
  NodeReadings TakeReadings();
  // Reports errors again that the coordinator did not receive.
  void ReturnErrors(const std::vector<GpuError>& errors);

 private:
  // Keeps new errors of the GPUs that this daemon offers.
  void TakeXids(const std::vector<devices::GpuXids>& xids);
  void TakeReclaims(const devices::GpuStatus& status, Time now);

  const DaemonSetup* const setup_;
  const devices::GpuSampler* const gpus_;
  const DiskFloor disk_floor_;
  const std::function<StatusOr<DiskSpace>(const std::string&)> disk_space_;
  NodeReadings readings_;
  CpuSeconds last_cpu_;
  // Errors that were already reported, in the order of the driver's GPUs.
  std::vector<devices::GpuXids> known_xids_;
  GpuReclaims reclaims_;
  bool disk_is_full_ = false;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_READINGS_NODE_SAMPLER_H_
