// GPU metrics on /metrics (lockstep_gpu_*) and on /metrics/dcgm (DCGM's names,
// labels and units, for dashboards of dcgm-exporter).
#ifndef LOCKSTEP_WORKER_AGENT_METRICS_GPU_METRICS_H_
#define LOCKSTEP_WORKER_AGENT_METRICS_GPU_METRICS_H_

#include <prometheus/collectable.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/model/resources.h"
#include "worker/agent/metrics/metric_families.h"
#include "worker/devices/gpu_sampler.h"

namespace lockstep::worker::agent {

// The rank that holds a GPU.
struct GpuHolder {
  std::string job;
  int32_t rank = 0;

  bool operator==(const GpuHolder&) const = default;
};

// Input of both pages.
struct GpuPageInput {
  std::vector<Gpu> gpus;
  std::vector<devices::GpuPlace> places;  // In the order of gpus, or empty.
  std::string driver_version;
  std::string hostname;
  devices::GpuStatus status;
  // By Gpu::index.
  std::map<int32_t, GpuHolder> holders;
};

// Adds nothing if there are no GPUs.
void CollectGpus(const GpuPageInput& input, MetricFamilies* out);
void CollectDcgm(const GpuPageInput& input, MetricFamilies* out);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_METRICS_GPU_METRICS_H_
