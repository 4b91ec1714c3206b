#include "server/core/host_fit.h"

#include <algorithm>

namespace lockstep::server {
namespace {

// Tolerance for cores: 3 x 0.1 is not 0.3.
constexpr double kCpuSlack = 1e-6;

}  // namespace

std::vector<HostCapacity> HostsOfPool(const std::string& pool,
                                      std::vector<HostCapacity> hosts) {
  if (pool.empty()) return hosts;
  std::erase_if(hosts,
                [&](const HostCapacity& host) { return host.pool != pool; });
  return hosts;
}

FreeHost FreeOf(const HostCapacity& host) {
  FreeHost free;
  free.host = &host;
  free.cpus = host.capacity.cpus - host.allocated.cpus;
  free.memory_bytes = host.capacity.memory_bytes - host.allocated.memory_bytes;
  const auto has = [](const std::vector<int32_t>& indices, int32_t index) {
    return std::find(indices.begin(), indices.end(), index) != indices.end();
  };
  for (const Gpu& gpu : host.gpus) {
    if (!has(host.allocated_gpus, gpu.index) &&
        !has(host.bad_gpus, gpu.index)) {
      free.gpus.push_back(&gpu);
    }
  }
  return free;
}

std::vector<const Gpu*> MatchingGpus(const FreeHost& free,
                                     const std::string& type) {
  std::vector<const Gpu*> matching;
  for (const Gpu* gpu : free.gpus) {
    if (GpuModelMatches(type, gpu->model)) matching.push_back(gpu);
  }
  return matching;
}

bool CanRun(const RoleSpec& role, const HostCapacity& host) {
  return !role.container || !host.container_engine.empty();
}

bool Fits(const RoleSpec& role, const FreeHost& free) {
  const Resources& need = role.resources;
  return CanRun(role, *free.host) && need.cpus <= free.cpus + kCpuSlack &&
         need.memory_bytes <= free.memory_bytes &&
         static_cast<size_t>(need.gpus) <=
             MatchingGpus(free, need.gpu_type).size();
}

std::vector<int32_t> Take(const Resources& need, FreeHost* free) {
  free->cpus -= need.cpus;
  free->memory_bytes -= need.memory_bytes;
  std::vector<int32_t> taken;
  for (const Gpu* gpu : MatchingGpus(*free, need.gpu_type)) {
    if (taken.size() == static_cast<size_t>(need.gpus)) break;
    taken.push_back(gpu->index);
    std::erase(free->gpus, gpu);
  }
  return taken;
}

}  // namespace lockstep::server
