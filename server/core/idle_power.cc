#include "server/core/idle_power.h"

#include <algorithm>

namespace lockstep::server {
namespace {

const Gpu* GpuOf(const std::vector<Gpu>& gpus, int32_t index) {
  for (const Gpu& gpu : gpus) {
    if (gpu.index == index) return &gpu;
  }
  return nullptr;
}

}  // namespace

void IdlePower::Take(const std::vector<Gpu>& gpus,
                     const std::vector<GpuUsage>& readings,
                     const std::set<int32_t>& held) {
  for (const GpuUsage& reading : readings) {
    const Gpu* const gpu = GpuOf(gpus, reading.index);
    if (gpu == nullptr || gpu->uuid.empty() || held.contains(reading.index) ||
        !reading.power_watts || *reading.power_watts <= 0) {
      continue;
    }
    const auto [least, is_new] =
        least_.try_emplace(gpu->uuid, *reading.power_watts);
    least->second = std::min(least->second, *reading.power_watts);
  }
}

GpusNow IdlePower::Now(const std::vector<Gpu>& gpus,
                       const std::vector<GpuUsage>& readings,
                       const std::vector<int32_t>& indices) const {
  GpusNow now;
  size_t known = 0;
  double most = 0;
  for (const GpuUsage& reading : readings) {
    const Gpu* const gpu = GpuOf(gpus, reading.index);
    if (gpu == nullptr || std::find(indices.begin(), indices.end(),
                                    reading.index) == indices.end()) {
      continue;
    }
    if (reading.utilization) {
      ++known;
      most = std::max(most, *reading.utilization);
    }
    const auto least = least_.find(gpu->uuid);
    if (reading.power_watts && least != least_.end()) {
      now.power_ratio = std::max(now.power_ratio.value_or(0),
                                 *reading.power_watts / least->second);
    }
  }
  if (known == indices.size()) now.utilization = most;
  return now;
}

}  // namespace lockstep::server
