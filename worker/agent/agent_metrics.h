// What a worker daemon shows on /metrics: this host, its GPUs and its tasks.
//
// The event loop sets the newest readings, threads of the HTTP server collect
// them. Names and units follow Prometheus's conventions; there is no `job`,
// `instance` or `node` label, which belong to whoever scrapes.
#ifndef LOCKSTEP_WORKER_AGENT_AGENT_METRICS_H_
#define LOCKSTEP_WORKER_AGENT_AGENT_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/os/procfs.h"
#include "worker/devices/nvml.h"

namespace lockstep {

// One rank. Of a finished one the last reading stays for a while.
struct TaskReading {
  std::string job;
  std::string role;
  int32_t index = 0;
  int32_t rank = 0;
  double cpu_seconds = 0;
  int64_t memory_bytes = 0;
  int64_t memory_peak_bytes = 0;
  uint64_t read_bytes = 0;
  uint64_t write_bytes = 0;
  uint64_t log_bytes = 0;
};

struct AgentReadings {
  HostMetrics host;
  double cpus_offered = 0;
  int64_t memory_offered_bytes = 0;
  std::vector<GpuReading> gpus;
  std::vector<TaskReading> tasks;
  bool connected = false;
  uint64_t reconnects = 0;
};

class AgentMetrics final : public prometheus::Collectable {
 public:
  void Set(AgentReadings readings) ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  mutable Mutex mu_;
  AgentReadings readings_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_AGENT_METRICS_H_
