// Metrics of a worker daemon on /metrics: this host, its GPUs and its tasks.
// docs/metrics-worker.md defines them.
//
// The event loop sets its values. Threads of the HTTP server read the host and
// the newest GPU readings when they collect. Names and units follow
// Prometheus's conventions. The labels `job`, `instance` and `node` are absent:
// the scraper sets them.
#ifndef LOCKSTEP_WORKER_AGENT_METRICS_AGENT_METRICS_H_
#define LOCKSTEP_WORKER_AGENT_METRICS_AGENT_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "worker/agent/metrics/gpu_metrics.h"
#include "worker/agent/metrics/task_reading.h"
#include "worker/devices/gpu_sampler.h"
#include "worker/devices/host_readings.h"

namespace lockstep::worker::agent {

class AgentMetrics final : public prometheus::Collectable {
 public:
  struct Options {
    // Borrowed; null: no GPUs.
    const devices::GpuSampler* gpus = nullptr;
    std::string hostname;
    // Directory of the daemon, whose free space is shown.
    std::string dir;
    std::function<StatusOr<devices::HostReadings>()> read_host = [] {
      return devices::ReadHostReadings();
    };
    // GPUs that this daemon offers. It skips the others, so sums over a host's
    // daemons count each GPU once. Nullopt: all.
    std::optional<std::vector<Gpu>> offered = std::nullopt;
  };

  explicit AgentMetrics(Options options) : options_(std::move(options)) {}

  void Set(AgentReadings readings) ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<prometheus::MetricFamily> Collect() const override;
  // For the pages of GPUs; `readings` may be older than the GPUs'.
  GpuPageInput GpuInput(const AgentReadings& readings) const;
  AgentReadings Readings() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  bool Offers(const Gpu& gpu) const;

  const Options options_;
  mutable Mutex mu_;
  AgentReadings readings_ ABSL_GUARDED_BY(mu_);
};

// /metrics/dcgm.
class DcgmMetrics final : public prometheus::Collectable {
 public:
  explicit DcgmMetrics(std::shared_ptr<AgentMetrics> metrics)
      : metrics_(std::move(metrics)) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::shared_ptr<AgentMetrics> metrics_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_METRICS_AGENT_METRICS_H_
