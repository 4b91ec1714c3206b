// Counts each second of each rank of a job in exactly one class. Pure.
//
// From submission to the end a job has as many rank-seconds as wall seconds
// times ranks, and the classes add up to that. A running rank that has joined
// says what it does by the seconds of its page's phases; until the next page
// its time waits, and is then shared out by the growth of the phases. What a
// rank does that has not joined is unknown, unless the job has stalled.
#ifndef LOCKSTEP_SERVER_METRICS_RANK_TIME_H_
#define LOCKSTEP_SERVER_METRICS_RANK_TIME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "server/core/job.h"

namespace lockstep::server {

enum class TimeClass {
  kQueued,
  // Hosts fetch and check what the first attempt needs.
  kPreparing,
  // From there to the first step: exec, import, forming, and what no phase
  // names.
  kStarting,
  // No rank says so yet; a native rank does not compile.
  kCompiling,
  kInput,
  // The optimizer included.
  kCompute,
  kCommunication,
  kStragglerWait,
  kCheckpoint,
  kEvaluation,
  // Steps that an earlier attempt had done.
  kRedone,
  // From a failure until all ranks run again.
  kRecovering,
  kStalled,
  // The rank has ended, and its job has not.
  kIdle,
  // A rank that has not joined, or is in no phase that says what it does.
  kUnknown,
};
inline constexpr size_t kTimeClasses = 15;
std::string_view Name(TimeClass time_class);

class RankTime {
 public:
  // Counts from now on.
  explicit RankTime(const Job& job);

  // `passed` since the last call went by in the job's state of the last Take.
  void Pass(Duration passed);
  // The job's new state. `redoes`: it repeats steps of an earlier attempt.
  void Take(const Job& job, bool stalled, bool redoes);
  // A page of a running rank.
  void TakePage(int32_t rank, const RankProgress& progress);

  // Rank-seconds.
  double seconds(TimeClass time_class) const {
    return seconds_[static_cast<size_t>(time_class)];
  }

 private:
  struct Rank {
    // Not shared out yet.
    double waiting = 0;
    // The phases that are; absent: those of the next page belong to time that
    // was not seen.
    std::optional<PhaseSeconds> shared;
    bool stepped = false;
    bool ended = false;
  };

  void Add(TimeClass time_class, double seconds) {
    seconds_[static_cast<size_t>(time_class)] += seconds;
  }
  void ShareOut(const PhaseSeconds& grown, Rank* rank);
  // The phases of what waits will not be known.
  void GiveUpWaiting();

  std::array<double, kTimeClasses> seconds_{};
  std::vector<Rank> ranks_;
  Generation generation_ = 0;
  // Of all ranks; absent: the job runs.
  std::optional<TimeClass> common_;
  bool stalled_ = false;
  bool redoes_ = false;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_RANK_TIME_H_
