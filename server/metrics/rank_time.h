// Counts each second of each rank of a job in exactly one class. Pure.
//
// From submission to the end a job has as many rank-seconds as wall seconds
// times ranks, and the classes add up to that. A running rank that has joined
// says what it does by the seconds of its page's phases. A page has a phase's
// seconds once the phase is over, so until then the rank's time waits. What
// still waits when the rank fails or ends belongs to the phase that its last
// page names. What a rank does that has not joined is unknown, unless the job
// has stalled.
#ifndef LOCKSTEP_SERVER_METRICS_RANK_TIME_H_
#define LOCKSTEP_SERVER_METRICS_RANK_TIME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
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
  // Kernels and graphs. A native rank does not compile.
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
  // From a failure until all ranks run again, or have joined the recovery.
  kRecovering,
  kStalled,
  // The rank has ended, and its job has not.
  kIdle,
  // A rank that has not joined, or is in no phase that says what it does.
  kUnknown,
};
inline constexpr size_t kTimeClasses = 15;
std::string_view Name(TimeClass time_class);

// A job that makes no progress: since its last sign, and of that the time past
// its limit.
struct Standstill {
  Duration total{};
  Duration beyond{};
};

class RankTime {
 public:
  // Counts from now on.
  explicit RankTime(const Job& job);

  // `passed` since the last call went by in the job's state of the last Take.
  void Pass(Duration passed);
  // The job's new state. `stalled`: absent if it has not stalled. Earlier
  // attempts had committed the steps up to `redo_until`; 0: none.
  void Take(const Job& job, const std::optional<Standstill>& stalled,
            int64_t redo_until);
  // A page of a running rank.
  void TakePage(int32_t rank, const RankProgress& progress);

  // Rank-seconds.
  double seconds(TimeClass time_class) const {
    return seconds_[static_cast<size_t>(time_class)];
  }

 private:
  struct Rank {
    // In no class yet.
    double waiting = 0;
    // Of that, at most so much is from before it joined. Absent: all.
    std::optional<double> before;
    // The phases that are in their classes; absent: those of the next page
    // belong to time that was not seen.
    std::optional<PhaseSeconds> shared;
    // What its newest page says that it does; absent: it has not joined.
    std::optional<TimeClass> now;
    // Of its newest page: the phases, and the phase that it names.
    PhaseSeconds newest;
    std::string phase;
    // While it stands still in a stall of the job: for how long, the seconds
    // of all phases when the stall was seen, and the time since the job's stall
    // ended. That ends with the first rank's new page, and the others' follow.
    bool stands = false;
    double stood = 0;
    double standing_sum = 0;
    double after = 0;
    // The newest step that it has committed in this generation; -1: none.
    int64_t committed = -1;
    bool ended = false;
    // The others train without it.
    bool away = false;
    // Of the process that its pages are of.
    int32_t restarts = 0;
  };

  void Add(TimeClass time_class, double seconds) {
    seconds_[static_cast<size_t>(time_class)] += seconds;
  }
  // Puts `part` of the phases' growth into their classes. `worked_on` is the
  // step that it was spent on; -1: unknown.
  void ShareOut(const PhaseSeconds& grown, double part, int64_t worked_on,
                const Rank& rank);
  // Of work on that step. Compiling is none: it may come with any step.
  TimeClass ClassOf(TimeClass time_class, int64_t worked_on) const;
  // No page will tell the phases of what waits.
  void GiveUpWaiting();
  // Classes of what waits when a stall begins, goes on or ends.
  void TakeStall(const std::optional<Standstill>& stalled);
  // Those whose process is another since the last call.
  void BeginReplaced(const Job& job);
  // Whether its newest page shows that it goes on, or none can be waited for.
  static bool GoesOn(const Rank& rank);
  void EndStall(Rank* rank);

  std::array<double, kTimeClasses> seconds_{};
  std::vector<Rank> ranks_;
  Generation generation_ = 0;
  // Of all ranks; absent: the job runs.
  std::optional<TimeClass> common_;
  bool stalled_ = false;
  int64_t redo_until_ = 0;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_RANK_TIME_H_
