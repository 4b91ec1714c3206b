// Learns how far apart the signs of progress of a program's rank are, and says
// when the rank has stalled. Pure: callers pass `now`.
//
// Only the best source seen so far counts, in this order: steps of a session,
// steps in log lines, files in the output directory, activity alone. A better
// source discards what was learned from the others.
//   p99  of the distances of the last 100 signs
//   session              stalled after max(10 s, 4 x p99) without a sign
//   log, files           after max(60 s, 4 x p99)
//   fewer than 10 signs  after max(60 s, 4 x p99)
// Work without steps may be an evaluation or a checkpoint, so the time of these
// rules begins when CPU, GPU and disk rest; but a rank that spins in a
// collective is busy, too. So it has stalled in any case
//   after max(1 min, 6 x p99) in a phase of its session that says what it does,
//   otherwise after max(10 min, 6 x p99).
// Before the first sign of steps or files a rank may do anything, as import and
// compile: it has stalled after max(60 s, 4 x p99) without activity, and not
// within the first 10 min. A native job's first step has the same time.
// `stall_after` replaces the learned times, and activity then counts only while
// it is the best source.
#ifndef LOCKSTEP_WORKER_AGENT_PROGRESS_PROGRESS_WATCH_H_
#define LOCKSTEP_WORKER_AGENT_PROGRESS_PROGRESS_WATCH_H_

#include <deque>
#include <optional>

#include "common/base/clock.h"
#include "common/model/job.h"

namespace lockstep::worker::agent {

struct SignLimits {
  // JobSpec::stall_after.
  std::optional<Duration> stall_after = std::nullopt;
  Duration grace = std::chrono::minutes(10);
  Duration joined_least = std::chrono::seconds(10);
  Duration least = std::chrono::seconds(60);
  int factor = 4;
  Duration phase_busy_least = std::chrono::minutes(1);
  Duration busy_least = std::chrono::minutes(10);
  int busy_factor = 6;
  // Longer times between two looks are no evidence: the daemon was stopped.
  Duration gap = std::chrono::seconds(5);
};

class ProgressWatch {
 public:
  // The rank started at `start`.
  ProgressWatch(SignLimits limits, MonoTime start)
      : limits_(limits), start_(start), last_(start) {}

  // Call it before each round of signs, about once a second.
  void Look(MonoTime now);
  void TakeSign(SignSource source, MonoTime now);
  // The rank says that it does what may take long, as a checkpoint: no time
  // passes.
  void TakePause(MonoTime now);
  // Whether the session's phase says what the rank does.
  void SetSays(bool says) { says_ = says; }

  // Step and total of a log line are not its concern.
  ProgressSigns Signs(MonoTime now) const;

 private:
  Duration Usual() const;
  Duration Limit(Duration usual) const;

  SignLimits limits_;
  MonoTime start_;
  SignSource source_ = SignSource::kNone;
  // The last sign of `source_`; before the first, the start.
  MonoTime last_;
  std::optional<MonoTime> active_;
  std::optional<MonoTime> looked_;
  std::deque<Duration> distances_;
  bool paused_ = false;
  bool says_ = false;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_PROGRESS_PROGRESS_WATCH_H_
