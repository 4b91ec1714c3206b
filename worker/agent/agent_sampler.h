// Reads the host and the ranks once a second, for heartbeats, /metrics and
// reports of disturbances by the host.
//
// Belongs to the event loop's thread.
#ifndef LOCKSTEP_WORKER_AGENT_AGENT_SAMPLER_H_
#define LOCKSTEP_WORKER_AGENT_AGENT_SAMPLER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "worker/agent/host/daemon_setup.h"
#include "worker/agent/host/orphans.h"
#include "worker/agent/loop/core_runner.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/metrics/agent_metrics.h"
#include "worker/agent/prepare/prepare_options.h"
#include "worker/agent/ranks/ranks.h"
#include "worker/agent/readings/node_sampler.h"
#include "worker/agent/stream/heartbeats.h"
#include "worker/agent/work/work_directories.h"

namespace lockstep::worker::agent {

class AgentSampler final : public HeartbeatSource {
 public:
  // Owners that it uses. All are borrowed; `gpus` may be null.
  struct Parts {
    const DaemonSetup* setup = nullptr;
    const PrepareOptions* disk = nullptr;
    EventLoop* loop = nullptr;
    const CoreRunner* core = nullptr;
    const devices::GpuSampler* gpus = nullptr;
    Ranks* ranks = nullptr;
    WorkDirectories* work = nullptr;
  };
  explicit AgentSampler(const Parts& parts);

  std::shared_ptr<AgentMetrics> metrics() const { return metrics_; }

  // Checks the disk before the first Sample.
  void CheckDisk() { node_.CheckDisk(); }
  // Samples if a second has passed. `connected` and `reconnects` of the stream
  // are for /metrics.
  void Sample(bool connected, uint64_t reconnects);
  // The gang has ended: asks for a reading of its GPUs.
  void ReleaseGpus(const GangKey& key, const LocalGang& gang);
  // Whether the GPUs of the gang were not read since ReleaseGpus.
  bool AwaitsGpus(const LocalGang& gang);
  const std::vector<GpuReclaim>& reclaims() const {
    return node_.readings().reclaims;
  }
  // Keeps the last readings of forgotten ranks for a few scrapes.
  void KeepFinished(std::vector<TaskReading> readings);

  // HeartbeatSource.
  NodeReadings TakeReadings() override { return node_.TakeReadings(); }
  void ReturnErrors(const std::vector<GpuError>& errors) override {
    node_.ReturnErrors(errors);
  }
  std::vector<GangProgress> Progress() override;
  // The GPUs that gangs hold, by index.
  std::map<int32_t, JobName> HeldGpus() const;

 private:
  void SampleRanks();
  void Publish(bool connected, uint64_t reconnects);
  // A rank of a later generation replaces an earlier one.
  std::vector<TaskReading> NewestReadings();

  const Parts parts_;
  const std::shared_ptr<AgentMetrics> metrics_;
  NodeSampler node_;
  OrphanReaper orphans_;
  std::vector<std::pair<MonoTime, TaskReading>> finished_;
  MonoTime next_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_AGENT_SAMPLER_H_
