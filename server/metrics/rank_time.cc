#include "server/metrics/rank_time.h"

#include <algorithm>

namespace lockstep::server {
namespace {

// Absent: it runs, and its ranks say the rest.
std::optional<TimeClass> CommonClass(const Job& job) {
  const bool ran = job.start_time.has_value();
  switch (job.state) {
    case JobState::kQueued:
      return TimeClass::kQueued;
    case JobState::kPlacing:
      return ran ? TimeClass::kRecovering : TimeClass::kQueued;
    case JobState::kPreparing:
      if (ran) return TimeClass::kRecovering;
      return job.cluster ? TimeClass::kStarting : TimeClass::kPreparing;
    case JobState::kForming:
      return ran ? TimeClass::kRecovering : TimeClass::kStarting;
    case JobState::kRunning:
      if (job.failing) return TimeClass::kRecovering;
      return std::nullopt;
    default:
      return TimeClass::kIdle;
  }
}

size_t RanksIn(const JobSpec& spec) {
  size_t ranks = 0;
  for (const RoleSpec& role : spec.roles) {
    ranks += static_cast<size_t>(role.count) *
             static_cast<size_t>(role.ranks_per_task);
  }
  return ranks;
}

// Of counters that only grow; 0 where they began anew.
double Grown(double before, double now) { return std::max(0.0, now - before); }

PhaseSeconds GrownBy(const PhaseSeconds& before, const PhaseSeconds& now) {
  return {Grown(before.input, now.input),
          Grown(before.compute, now.compute),
          Grown(before.allreduce, now.allreduce),
          Grown(before.straggler_wait, now.straggler_wait),
          Grown(before.optimizer, now.optimizer),
          Grown(before.checkpoint, now.checkpoint),
          Grown(before.evaluation, now.evaluation),
          Grown(before.other, now.other)};
}

}  // namespace

std::string_view Name(TimeClass time_class) {
  static constexpr std::string_view kNames[] = {
      "queued",  "preparing",     "starting",       "compiling",  "input",
      "compute", "communication", "straggler_wait", "checkpoint", "evaluation",
      "redone",  "recovering",    "stalled",        "idle",       "unknown"};
  return kNames[static_cast<size_t>(time_class)];
}

RankTime::RankTime(const Job& job) { Take(job, false, false); }

void RankTime::Pass(Duration passed) {
  const double seconds = ToSeconds(passed);
  for (Rank& rank : ranks_) {
    if (common_) {
      Add(*common_, seconds);
    } else if (rank.ended) {
      Add(TimeClass::kIdle, seconds);
    } else if (stalled_) {
      Add(TimeClass::kStalled, seconds);
    } else {
      rank.waiting += seconds;
    }
  }
}

void RankTime::GiveUpWaiting() {
  for (Rank& rank : ranks_) {
    Add(TimeClass::kUnknown, rank.waiting);
    rank.waiting = 0;
  }
}

void RankTime::Take(const Job& job, bool stalled, bool redoes) {
  const bool first = ranks_.empty();
  if (job.generation != generation_ || first) {
    GiveUpWaiting();
    ranks_.assign(RanksIn(job.spec), Rank());
    // A generation that is seen from its start has counted nothing before.
    if (!first || job.state == JobState::kQueued) {
      for (Rank& rank : ranks_) rank.shared = PhaseSeconds();
    }
    generation_ = job.generation;
  }
  for (const RankStatus* status : RanksOf(job)) {
    const auto index = static_cast<size_t>(status->rank);
    if (index >= ranks_.size()) continue;
    Rank& rank = ranks_[index];
    if (status->exit && !rank.ended) TakePage(status->rank, status->progress);
    // A worker may restart alone, and its page then begins anew.
    if (!status->exit && rank.ended) {
      rank = Rank();
      rank.shared = PhaseSeconds();
    }
    rank.ended = status->exit.has_value();
  }
  common_ = CommonClass(job);
  if (common_ || stalled) GiveUpWaiting();
  stalled_ = stalled;
  redoes_ = redoes;
}

void RankTime::TakePage(int32_t number, const RankProgress& progress) {
  const auto index = static_cast<size_t>(number);
  if (index >= ranks_.size() || common_) return;
  Rank& rank = ranks_[index];
  const PhaseSeconds& phases = progress.phases;
  // It has not joined, or what it did before was not seen, or nobody knows what
  // it did while it stood still.
  if (progress.phase.empty() || !rank.shared || stalled_) {
    Add(TimeClass::kUnknown, rank.waiting);
    rank.waiting = 0;
    if (!progress.phase.empty()) rank.shared = phases;
    return;
  }
  rank.stepped = rank.stepped || progress.committed_step > 0;
  const PhaseSeconds grown = GrownBy(*rank.shared, phases);
  // Nothing new was said: it waits for the next page.
  if (grown.Sum() <= 0) return;
  rank.shared = phases;
  ShareOut(grown, &rank);
}

void RankTime::ShareOut(const PhaseSeconds& grown, Rank* rank) {
  const double scale = rank->waiting / grown.Sum();
  rank->waiting = 0;
  const auto add = [&](TimeClass time_class, double seconds) {
    Add(redoes_ ? TimeClass::kRedone : time_class, seconds * scale);
  };
  add(TimeClass::kInput, grown.input);
  add(TimeClass::kCompute, grown.compute + grown.optimizer);
  add(TimeClass::kCommunication, grown.allreduce);
  add(TimeClass::kStragglerWait, grown.straggler_wait);
  add(TimeClass::kCheckpoint, grown.checkpoint);
  add(TimeClass::kEvaluation, grown.evaluation);
  add(rank->stepped ? TimeClass::kUnknown : TimeClass::kStarting, grown.other);
}

}  // namespace lockstep::server
