// The ranks that the others waited for: over the last steps, and over all.
// PURE.
//
// Add gets once a step what the tail says (step_tail.h). The rank that came
// last cost its gang the time for which only it was missing; with two ranks of
// equal speed either one is last in half of the steps and costs little.
#ifndef LOCKSTEP_WORKER_RUNTIME_LATE_RANKS_H_
#define LOCKSTEP_WORKER_RUNTIME_LATE_RANKS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "worker/task/rank_page.h"

namespace lockstep::worker::runtime {

class LateRanks {
 public:
  static constexpr size_t kWindow = 100;

  // A step of length `step` to which `rank` came last, `late_by` after the last
  // but one; this rank waited for it for `waited`. A negative rank: not known.
  void Add(int rank, Duration late_by, Duration waited, Duration step);

  // The rank that cost most in the last kWindow steps.
  task::StragglerReading straggler() const { return straggler_; }
  // The ranks that this rank waited for longest, the longest first; unused
  // places are at the end. Exact.
  const std::array<task::LateRankReading, task::kLateRanks>& longest_waits()
      const {
    return longest_waits_;
  }

 private:
  struct Step {
    int rank = -1;
    Duration late_by{};
    Duration length{};
  };
  struct Cost {
    uint32_t steps = 0;
    Duration late_by{};
  };
  struct Waits {
    uint64_t steps = 0;
    Duration waited{};
  };

  void Slide(const Step& step);
  void FindStraggler();
  void Blame(int rank, Duration waited);

  std::vector<Step> window_;
  size_t oldest_ = 0;
  Duration length_{};
  std::map<int, Cost> costs_;  // In the window.
  task::StragglerReading straggler_;

  std::map<int, Waits> waits_;
  std::array<task::LateRankReading, task::kLateRanks> longest_waits_{};
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_LATE_RANKS_H_
