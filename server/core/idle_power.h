// Knows how little each GPU draws while no rank has it. Pure.
//
// A GPU's driver reports power with noise of a few per cent, and a GPU that was
// just released takes seconds to cool its clocks: the least reading stays.
#ifndef LOCKSTEP_SERVER_CORE_IDLE_POWER_H_
#define LOCKSTEP_SERVER_CORE_IDLE_POWER_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/model/node.h"
#include "server/core/idle_watch.h"

namespace lockstep::server {

class IdlePower {
 public:
  // A node's readings of its GPUs. `held`: indices of those that ranks have.
  void Take(const std::vector<Gpu>& gpus, const std::vector<GpuUsage>& readings,
            const std::set<int32_t>& held);

  // What the GPUs with these indices do now.
  GpusNow Now(const std::vector<Gpu>& gpus,
              const std::vector<GpuUsage>& readings,
              const std::vector<int32_t>& indices) const;

 private:
  // Watts, by UUID.
  std::map<std::string, double> least_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_IDLE_POWER_H_
