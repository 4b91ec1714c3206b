#include "worker/bench/step_results.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {

StepTimes Summarize(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double part) {
    const double rank = std::ceil(part * static_cast<double>(seconds.size()));
    return seconds[std::max<size_t>(1, static_cast<size_t>(rank)) - 1];
  };
  return {at(0.5), at(0.99),
          std::accumulate(seconds.begin(), seconds.end(), 0.0) /
              static_cast<double>(seconds.size())};
}

double StepResults::efficiency() const {
  return step.p50 > 0 ? alone.p50 / step.p50 : 0;
}

StepOfRank StepResults::mean() const {
  StepOfRank sum;
  for (const StepOfRank& rank : by_rank) {
    sum.compute += rank.compute;
    sum.busy += rank.busy;
    sum.exposed += rank.exposed;
    sum.waited += rank.waited;
  }
  const double n = by_rank.empty() ? 1 : static_cast<double>(by_rank.size());
  return {sum.compute / n, sum.busy / n, sum.exposed / n, sum.waited / n};
}

double StepResults::hidden() const {
  const StepOfRank all = mean();
  return all.busy > 0 ? std::clamp(1 - all.exposed / all.busy, 0.0, 1.0) : 0;
}

double StepResults::bus_bandwidth() const {
  const double busy = mean().busy;
  if (busy <= 0 || ranks < 2) return 0;
  return 2.0 * (ranks - 1) / ranks * static_cast<double>(bytes) / busy;
}

}  // namespace lockstep
