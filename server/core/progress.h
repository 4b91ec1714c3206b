// Measures the speed of a job from the status pages of its ranks. Pure.
#ifndef LOCKSTEP_SERVER_CORE_PROGRESS_H_
#define LOCKSTEP_SERVER_CORE_PROGRESS_H_

#include <deque>
#include <map>
#include <optional>

#include "common/model/job.h"

namespace lockstep::server {

struct JobProgressInfo {
  Generation generation = 0;
  // Of the rank that speaks for all (elastic.h).
  RankProgress chief;
  // Over the last kWindow; 0: not measured yet.
  double samples_per_second = 0;
  double steps_per_second = 0;
  std::optional<Duration> eta;
  // When that rank last reported.
  std::optional<WallTime> time;
};

class ProgressMeter {
 public:
  static constexpr Duration kWindow = std::chrono::seconds(10);

  // Discards all data of older generations.
  void Reset(Generation generation);
  // From now on the chief is rank `chief`, or as soon as that has made a step;
  // at first rank 0.
  void Follow(int32_t chief) { next_chief_ = chief; }
  // Records a report of rank `rank`. The caller drops late reports and those of
  // other generations.
  void Take(int32_t rank, const RankProgress& progress, Time now);

  JobProgressInfo Info() const;
  // When a report last showed a newly committed step; nullopt if none did.
  std::optional<MonoTime> last_step_time() const { return last_step_time_; }

 private:
  struct Sample {
    MonoTime time;
    int64_t samples = 0;
    int64_t steps = 0;
  };

  Generation generation_ = 0;
  int32_t chief_ = 0;
  int32_t next_chief_ = 0;
  std::map<int32_t, RankProgress> ranks_;
  std::deque<Sample> samples_;
  std::optional<MonoTime> last_step_time_;
  std::optional<WallTime> heard_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_PROGRESS_H_
