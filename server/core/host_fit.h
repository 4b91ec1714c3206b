// The free resources of a host, and whether a task fits there. Pure; for
// scheduler.cc and its texts.
#ifndef LOCKSTEP_SERVER_CORE_HOST_FIT_H_
#define LOCKSTEP_SERVER_CORE_HOST_FIT_H_

#include <string>
#include <vector>

#include "server/core/placement.h"

namespace lockstep::server {

// Points into the HostCapacity that it was made from.
struct FreeHost {
  const HostCapacity* host = nullptr;
  double cpus = 0;
  int64_t memory_bytes = 0;
  std::vector<const Gpu*> gpus;
};

// Returns the hosts of `pool`, or all hosts if `pool` is empty.
std::vector<HostCapacity> HostsOfPool(const std::string& pool,
                                      std::vector<HostCapacity> hosts);

FreeHost FreeOf(const HostCapacity& host);

std::vector<const Gpu*> MatchingGpus(const FreeHost& free,
                                     const std::string& type);

// False for a role in a container if the host has no container engine.
bool CanRun(const RoleSpec& role, const HostCapacity& host);

// Whether one task of `role` fits.
bool Fits(const RoleSpec& role, const FreeHost& free);

// Removes one task's resources from `free`. Returns the indices of its GPUs:
// the first that match in `free->gpus`.
std::vector<int32_t> Take(const Resources& need, FreeHost* free);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_HOST_FIT_H_
