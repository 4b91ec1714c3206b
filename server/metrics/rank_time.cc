#include "server/metrics/rank_time.h"

#include <algorithm>
#include <utility>

#include "server/core/recovery.h"

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
      if (job.failing || IsRecovering(job)) return TimeClass::kRecovering;
      return std::nullopt;
    default:
      return TimeClass::kIdle;
  }
}

// Of the generation, which may have fewer than the spec asks for.
size_t RanksIn(const Job& job) {
  if (!job.tasks.empty()) return RanksOf(job).size();
  size_t ranks = 0;
  for (const RoleSpec& role : job.spec.roles) {
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
          Grown(before.other, now.other),
          Grown(before.compile, now.compile)};
}

// `now` without what is left of `grown` when `part` of it is taken.
PhaseSeconds Without(const PhaseSeconds& now, const PhaseSeconds& grown,
                     double part) {
  const double left = 1 - part;
  return {now.input - grown.input * left,
          now.compute - grown.compute * left,
          now.allreduce - grown.allreduce * left,
          now.straggler_wait - grown.straggler_wait * left,
          now.optimizer - grown.optimizer * left,
          now.checkpoint - grown.checkpoint * left,
          now.evaluation - grown.evaluation * left,
          now.other - grown.other * left,
          now.compile - grown.compile * left};
}

// Of the phase with this name; null: it is none of them.
double* SecondsOf(std::string_view phase, PhaseSeconds* phases) {
  if (phase == "input") return &phases->input;
  if (phase == "compute") return &phases->compute;
  if (phase == "allreduce") return &phases->allreduce;
  if (phase == "straggler_wait") return &phases->straggler_wait;
  if (phase == "optimizer") return &phases->optimizer;
  if (phase == "checkpoint") return &phases->checkpoint;
  if (phase == "evaluation") return &phases->evaluation;
  if (phase == "compile") return &phases->compile;
  return phase == "other" ? &phases->other : nullptr;
}

// A page may be so much newer than the time that has passed here; more is of
// time that was not seen. The end of a stall is seen so late at most.
constexpr double kNewer = 2;

// Of the phase that a page names.
TimeClass ClassOfPhase(std::string_view phase, bool stepped) {
  static constexpr std::pair<std::string_view, TimeClass> kClasses[] = {
      {"input", TimeClass::kInput},
      {"compute", TimeClass::kCompute},
      {"optimizer", TimeClass::kCompute},
      {"allreduce", TimeClass::kCommunication},
      {"straggler_wait", TimeClass::kStragglerWait},
      {"checkpoint", TimeClass::kCheckpoint},
      {"evaluation", TimeClass::kEvaluation},
      {"compile", TimeClass::kCompiling},
  };
  for (const auto& [name, time_class] : kClasses) {
    if (name == phase) return time_class;
  }
  return stepped ? TimeClass::kUnknown : TimeClass::kStarting;
}

}  // namespace

std::string_view Name(TimeClass time_class) {
  static constexpr std::string_view kNames[] = {
      "queued",  "preparing",     "starting",       "compiling",  "input",
      "compute", "communication", "straggler_wait", "checkpoint", "evaluation",
      "redone",  "recovering",    "stalled",        "idle",       "unknown"};
  return kNames[static_cast<size_t>(time_class)];
}

RankTime::RankTime(const Job& job) { Take(job, std::nullopt, 0); }

void RankTime::Pass(Duration passed) {
  const double seconds = ToSeconds(passed);
  for (Rank& rank : ranks_) {
    if (common_) {
      Add(*common_, seconds);
    } else if (rank.away) {
      Add(TimeClass::kRecovering, seconds);
    } else if (rank.ended) {
      Add(TimeClass::kIdle, seconds);
    } else {
      rank.waiting += seconds;
      if (rank.stands) rank.stood += seconds;
      if (rank.stands && !stalled_) rank.after += seconds;
    }
  }
}

TimeClass RankTime::ClassOf(TimeClass time_class, int64_t worked_on) const {
  const bool step = time_class != TimeClass::kUnknown &&
                    time_class != TimeClass::kStarting &&
                    time_class != TimeClass::kCompiling;
  const bool redone =
      redo_until_ > 0 && worked_on >= 0 && worked_on <= redo_until_;
  return step && redone ? TimeClass::kRedone : time_class;
}

void RankTime::GiveUpWaiting() {
  for (Rank& rank : ranks_) {
    const double before =
        std::min(rank.before.value_or(rank.waiting), rank.waiting);
    if (rank.stands) {
      Add(TimeClass::kStalled, rank.waiting);
      rank.stands = false;
    } else {
      Add(TimeClass::kUnknown, before);
      // Without a number it is a repeated step, if earlier ones were.
      const int64_t worked_on = rank.committed < 0 ? 0 : rank.committed + 1;
      Add(ClassOf(rank.now.value_or(TimeClass::kUnknown), worked_on),
          rank.waiting - before);
    }
    rank.waiting = 0;
    if (rank.now) rank.before = 0;
  }
}

void RankTime::TakeStall(const std::optional<Standstill>& stalled) {
  for (Rank& rank : ranks_) {
    if (!stalled && rank.stands && GoesOn(rank)) EndStall(&rank);
    // Up to the limit it may have worked.
    if (stalled && !stalled_) {
      rank.stands = true;
      rank.after = 0;
      rank.stood = ToSeconds(stalled->total);
      rank.standing_sum = rank.newest.Sum();
      const double beyond = std::min(rank.waiting, ToSeconds(stalled->beyond));
      Add(TimeClass::kUnknown, rank.waiting - beyond);
      rank.waiting = beyond;
    }
    if (!rank.stands) continue;
    const double known = std::max(0.0, rank.waiting - kNewer);
    Add(TimeClass::kStalled, known);
    rank.waiting -= known;
  }
}

// A page has a phase's seconds once it is over, which may take long.
bool RankTime::GoesOn(const Rank& rank) {
  return !rank.shared || rank.phase.empty() || rank.after >= kNewer ||
         rank.newest.Sum() > rank.standing_sum;
}

// It stood still in the phase that its page named. The other phases have grown
// after the stall, and what no phase has yet is the newest of its time.
void RankTime::EndStall(Rank* rank) {
  double gone_on = 0;
  if (rank->shared) {
    const double grown = GrownBy(*rank->shared, rank->newest).Sum();
    if (grown > 0) gone_on = std::max(0.0, rank->stood - grown);
    double* const stood = SecondsOf(rank->phase, &*rank->shared);
    if (stood != nullptr) {
      *stood = *SecondsOf(rank->phase, &rank->newest);
      gone_on += GrownBy(*rank->shared, rank->newest).Sum();
    } else {
      rank->shared = rank->newest;
    }
  }
  gone_on = std::min(rank->waiting, gone_on);
  Add(TimeClass::kStalled, rank->waiting - gone_on);
  rank->waiting = gone_on;
  rank->stands = false;
}

void RankTime::Take(const Job& job, const std::optional<Standstill>& stalled,
                    int64_t redo_until) {
  const bool first = ranks_.empty();
  if (job.generation != generation_ || first) {
    GiveUpWaiting();
    ranks_.assign(RanksIn(job), Rank());
    // A generation that is seen from its start has counted nothing before.
    if (!first || job.state == JobState::kQueued) {
      for (Rank& rank : ranks_) rank.shared = PhaseSeconds();
    }
    generation_ = job.generation;
    for (const RankStatus* status : RanksOf(job)) {
      const auto index = static_cast<size_t>(status->rank);
      if (index < ranks_.size()) ranks_[index].restarts = status->restarts;
    }
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
    rank.away = status->away;
  }
  common_ = CommonClass(job);
  if (common_) {
    GiveUpWaiting();
    BeginReplaced(job);
  } else {
    TakeStall(stalled);
  }
  stalled_ = !common_ && stalled.has_value();
  redo_until_ = redo_until;
}

// Their pages begin anew. The end of the process before may not be seen.
void RankTime::BeginReplaced(const Job& job) {
  for (const RankStatus* status : RanksOf(job)) {
    const auto index = static_cast<size_t>(status->rank);
    if (index >= ranks_.size()) continue;
    Rank& rank = ranks_[index];
    if (rank.restarts == status->restarts) continue;
    rank = Rank();
    rank.shared = PhaseSeconds();
    rank.restarts = status->restarts;
  }
}

void RankTime::TakePage(int32_t number, const RankProgress& progress) {
  const auto index = static_cast<size_t>(number);
  if (index >= ranks_.size() || common_ || ranks_[index].away) return;
  Rank& rank = ranks_[index];
  const PhaseSeconds& phases = progress.phases;
  if (!progress.phase.empty()) rank.newest = phases;
  if (rank.stands) {
    if (stalled_ || !GoesOn(rank)) return;
    EndStall(&rank);
  }
  rank.phase = progress.phase;
  // It has not joined, or what it did before was not seen.
  if (progress.phase.empty() || !rank.shared) {
    Add(TimeClass::kUnknown, rank.waiting);
    rank.waiting = 0;
    if (!progress.phase.empty()) rank.shared = phases;
    return;
  }
  const PhaseSeconds grown = GrownBy(*rank.shared, phases);
  const double sum = grown.Sum();
  const int64_t worked_on =
      rank.committed < 0 ? progress.committed_step : rank.committed + 1;
  // The number of the first step tells whether it was done before.
  const bool may_redo = redo_until_ > 0 && worked_on < 0;
  if (sum > 0 && !may_redo) {
    const double part = std::min(1.0, rank.waiting / sum);
    ShareOut(grown, part, worked_on, rank);
    rank.shared =
        sum > rank.waiting + kNewer ? phases : Without(phases, grown, part);
    rank.waiting = std::max(0.0, rank.waiting - sum);
  }
  rank.before = std::min(rank.before.value_or(rank.waiting), rank.waiting);
  rank.committed = std::max(rank.committed, progress.committed_step);
  rank.now = ClassOfPhase(progress.phase, rank.committed >= 0);
}

void RankTime::ShareOut(const PhaseSeconds& grown, double part,
                        int64_t worked_on, const Rank& rank) {
  const auto add = [&](TimeClass time_class, double seconds) {
    Add(ClassOf(time_class, worked_on), seconds * part);
  };
  add(TimeClass::kInput, grown.input);
  add(TimeClass::kCompute, grown.compute + grown.optimizer);
  add(TimeClass::kCommunication, grown.allreduce);
  add(TimeClass::kStragglerWait, grown.straggler_wait);
  add(TimeClass::kCheckpoint, grown.checkpoint);
  add(TimeClass::kEvaluation, grown.evaluation);
  add(TimeClass::kCompiling, grown.compile);
  add(rank.committed >= 0 ? TimeClass::kUnknown : TimeClass::kStarting,
      grown.other);
}

}  // namespace lockstep::server
