#include "worker/runtime/late_ranks.h"

#include <algorithm>

namespace lockstep::worker::runtime {

void LateRanks::Add(int rank, Duration late_by, Duration waited,
                    Duration step) {
  if (rank < 0) return;
  Slide({rank, std::clamp(late_by, Duration(0), step), step});
  FindStraggler();
  Blame(rank, waited);
}

void LateRanks::Slide(const Step& step) {
  if (window_.size() < kWindow) {
    window_.push_back(step);
  } else {
    Step& gone = window_[oldest_];
    oldest_ = (oldest_ + 1) % kWindow;
    const auto cost = costs_.find(gone.rank);
    cost->second.late_by -= gone.late_by;
    length_ -= gone.length;
    if (--cost->second.steps == 0) costs_.erase(cost);
    gone = step;
  }
  Cost& cost = costs_[step.rank];
  ++cost.steps;
  cost.late_by += step.late_by;
  length_ += step.length;
}

void LateRanks::FindStraggler() {
  const auto worst = std::max_element(
      costs_.begin(), costs_.end(), [](const auto& a, const auto& b) {
        return a.second.late_by < b.second.late_by;
      });
  straggler_.rank = worst->first;
  straggler_.steps = static_cast<uint32_t>(window_.size());
  straggler_.late_steps = worst->second.steps;
  straggler_.cost = length_ > Duration(0)
                        ? ToSeconds(worst->second.late_by) / ToSeconds(length_)
                        : 0;
}

// Only the sum of `rank` has grown, so nobody else can come into the list.
void LateRanks::Blame(int rank, Duration waited) {
  Waits& waits = waits_[rank];
  ++waits.steps;
  waits.waited += std::max(waited, Duration(0));
  const task::LateRankReading now = {rank, waits.steps,
                                     ToSeconds(waits.waited)};
  auto place = std::find_if(
      longest_waits_.begin(), longest_waits_.end(),
      [&](const task::LateRankReading& other) { return other.rank == rank; });
  if (place == longest_waits_.end()) place = longest_waits_.end() - 1;
  if (place->rank >= 0 && place->waited_seconds > now.waited_seconds) return;
  *place = now;
  for (; place != longest_waits_.begin(); --place) {
    const auto before = place - 1;
    if (before->rank >= 0 && before->waited_seconds >= place->waited_seconds) {
      break;
    }
    std::swap(*before, *place);
  }
}

}  // namespace lockstep::worker::runtime
