#include "worker/agent/readings/session_cpu.h"

#include <algorithm>
#include <utility>

namespace lockstep::worker::agent {

double SessionCpu::Take(const std::map<pid_t, double>& living, double reaped) {
  std::set<pid_t> now;
  double sum = 0;
  for (const auto& [keeper, seconds] : living) {
    now.insert(keeper);
    sum += seconds;
  }
  const bool ended =
      std::any_of(keepers_.begin(), keepers_.end(),
                  [&](pid_t keeper) { return !now.contains(keeper); });
  const double grown = std::max(0.0, reaped - std::exchange(reaped_, reaped));
  if (ended) ended_ += grown;
  keepers_ = std::move(now);
  return ended_ + sum;
}

}  // namespace lockstep::worker::agent
