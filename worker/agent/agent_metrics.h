// What a worker daemon shows on /metrics: this host, its GPUs and its tasks,
// with the meanings in docs/metrics-worker.md.
//
// The event loop sets what it knows; threads of the HTTP server read the host
// and the last readings of the GPUs when they collect. Names and units follow
// Prometheus's conventions; there is no `job`, `instance` or `node` label,
// which belong to whoever scrapes.
#ifndef LOCKSTEP_WORKER_AGENT_AGENT_METRICS_H_
#define LOCKSTEP_WORKER_AGENT_AGENT_METRICS_H_

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
#include "worker/agent/gpu_metrics.h"
#include "worker/agent/task_cgroup.h"
#include "worker/devices/gpu_sampler.h"
#include "worker/devices/host_readings.h"
#include "worker/task/rank_page.h"

namespace lockstep {

// One rank. Of a finished one the last reading stays for a while.
struct TaskReading {
  std::string job;
  std::string role;
  int32_t index = 0;
  int32_t rank = 0;
  // Generations of the job before this one.
  int32_t restarts = 0;
  bool ended = false;
  double cpu_seconds = 0;
  int64_t memory_bytes = 0;
  int64_t memory_peak_bytes = 0;
  uint64_t read_bytes = 0;
  uint64_t write_bytes = 0;
  uint64_t log_bytes = 0;
  uint64_t log_dropped_bytes = 0;
  uint64_t log_gaps = 0;
  // Of a cgroup of its own.
  std::optional<TaskCgroupReading> cgroup;
  // Of its page; native ranks only.
  std::optional<task::RankCounters> counters;
  std::vector<int32_t> gpus;
};

struct AgentReadings {
  double cpus_offered = 0;
  int64_t memory_offered_bytes = 0;
  // Of the daemon's certificate, seconds since 1970; absent: it has none.
  std::optional<double> certificate_end;
  std::vector<TaskReading> tasks;
  bool connected = false;
  uint64_t reconnects = 0;
  // Jobs whose working directories were removed because the disk was full.
  uint64_t dropped_work = 0;
};

class AgentMetrics final : public prometheus::Collectable {
 public:
  struct Options {
    // Borrowed; null: no GPUs.
    const GpuSampler* gpus = nullptr;
    std::string hostname;
    // The daemon's: the space there is shown.
    std::string dir;
    std::function<StatusOr<HostReadings>()> read_host = [] {
      return ReadHostReadings();
    };
    // Which of them this daemon offers: the others are another's to show, so
    // that sums over a host's daemons count each GPU once. Nothing: all.
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

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_AGENT_METRICS_H_
