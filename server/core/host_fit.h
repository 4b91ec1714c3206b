// What is free on a host, and whether a task fits there. Pure; for
// scheduler.cc and its texts.
#ifndef LOCKSTEP_SERVER_CORE_HOST_FIT_H_
#define LOCKSTEP_SERVER_CORE_HOST_FIT_H_

#include <string>
#include <vector>

#include "server/core/placement.h"

namespace lockstep {

// Points into the HostCapacity that it was made of.
struct FreeHost {
  const HostCapacity* host = nullptr;
  double cpus = 0;
  int64_t memory_bytes = 0;
  std::vector<const Gpu*> gpus;
};

// Of the pool named so; of all where it is empty.
std::vector<HostCapacity> HostsOfPool(const std::string& pool,
                                      std::vector<HostCapacity> hosts);

FreeHost FreeOf(const HostCapacity& host);

std::vector<const Gpu*> MatchingGpus(const FreeHost& free,
                                     const std::string& type);

// A role in a container goes only where an engine is.
bool CanRun(const RoleSpec& role, const HostCapacity& host);

// One task of `role`.
bool Fits(const RoleSpec& role, const FreeHost& free);

// Takes one task's part; returns the indices of its GPUs, the first in
// `free->gpus` that match.
std::vector<int32_t> Take(const Resources& need, FreeHost* free);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_HOST_FIT_H_
