#include "server/metrics/job_account.h"

#include <algorithm>

#include "server/core/recovery.h"

namespace lockstep::server {
namespace {

RestartReason RestartReasonOf(Reason reason) {
  switch (reason) {
    case Reason::kRankExit:
    case Reason::kRankSignal:
    case Reason::kDiverged:
    case Reason::kCheckpointFailed:
      return RestartReason::kRankExit;
    case Reason::kOutOfMemory:
      return RestartReason::kOom;
    case Reason::kNodeLost:
    case Reason::kNodeForgotten:
    case Reason::kNodeRebooted:
      return RestartReason::kNodeLost;
    case Reason::kNodeDrained:
    case Reason::kNodeDrain:
      return RestartReason::kDrain;
    case Reason::kStalled:
      return RestartReason::kHang;
    case Reason::kPrepareRefused:
    case Reason::kOutputNotShared:
    case Reason::kOutputMissing:
    case Reason::kNoCheckpoint:
    case Reason::kPrepareTimeout:
    case Reason::kFormTimeout:
    case Reason::kExecFailed:
      return RestartReason::kLaunch;
    case Reason::kRestartRequested:
    case Reason::kRestoreOrdered:
    case Reason::kResized:
      return RestartReason::kUser;
    default:
      return RestartReason::kOther;
  }
}

}  // namespace

std::string_view Name(TimeState state) {
  static constexpr std::string_view kNames[] = {
      "queued",     "launching", "productive", "unknown",
      "recomputed", "stalled",   "recovering", "finishing"};
  return kNames[static_cast<size_t>(state)];
}

std::string_view Name(RestartReason reason) {
  static constexpr std::string_view kNames[] = {
      "rank_exit", "oom",    "node_lost", "drain",
      "hang",      "launch", "user",      "other"};
  return kNames[static_cast<size_t>(reason)];
}

std::array<int64_t, kRestartReasons> RestartsOf(const Job& job) {
  std::array<int64_t, kRestartReasons> restarts{};
  int64_t known = 0;
  for (const Attempt& attempt : job.attempts) {
    if (known == job.restarts) break;
    ++restarts[static_cast<size_t>(RestartReasonOf(attempt.end_cause.reason))];
    ++known;
  }
  // Attempts that are no longer stored.
  restarts[static_cast<size_t>(RestartReason::kOther)] +=
      std::max<int64_t>(0, job.restarts - known);
  return restarts;
}

JobAccount::JobAccount(const Job& job, Time now)
    : advanced_(now.mono),
      generation_(job.generation),
      checkpoints_{.newest = job.last_checkpoint},
      // A native job that was found running may or may not make steps.
      stepping_(job.state == JobState::kRunning &&
                job.spec.kind == JobKind::kNative),
      rank_time_(job),
      training_(job) {
  Take(job);
}

TimeState JobAccount::StateOf(const Job& job) const {
  const bool ran = job.start_time.has_value();
  switch (job.state) {
    case JobState::kQueued:
      return TimeState::kQueued;
    case JobState::kPlacing:
    case JobState::kPreparing:
    case JobState::kForming:
      return ran ? TimeState::kRecovering : TimeState::kLaunching;
    case JobState::kRunning:
      break;
    default:
      return TimeState::kFinishing;
  }
  if (job.failing || IsRecovering(job)) return TimeState::kRecovering;
  // The steps of a native job show whether it goes on.
  if (silent_ && job.spec.kind == JobKind::kProgram) return TimeState::kUnknown;
  if (!stepping_) {
    // It need not join, so nothing is known of it before its first step.
    if (job.spec.kind == JobKind::kProgram) {
      return quiet_ ? TimeState::kStalled : TimeState::kUnknown;
    }
    return job.restarts > 0 || job.attempt > 1 ? TimeState::kRecovering
                                               : TimeState::kLaunching;
  }
  if (quiet_) return TimeState::kStalled;
  return training_.redoes() ? TimeState::kRecomputed : TimeState::kProductive;
}

void JobAccount::Take(const Job& job) {
  version_ = job.resource_version;
  holds_ = job.holds;
  state_ = StateOf(job);
  stragglers_.AddNodes(job);
  rank_time_.Take(job, state_ == TimeState::kStalled ? quiet_ : std::nullopt,
                  training_.redo_until());
  if (job.last_checkpoint && job.last_checkpoint != checkpoints_.newest) {
    ++checkpoints_.count;
    checkpoints_.bytes +=
        static_cast<double>(std::max<int64_t>(0, job.last_checkpoint->bytes));
    checkpoints_.newest = job.last_checkpoint;
  }
}

void JobAccount::Advance(MonoTime now, const Pools& pools) {
  const double passed = ToSeconds(std::max(Duration{}, now - advanced_));
  advanced_ = std::max(advanced_, now);
  seconds_[static_cast<size_t>(state_)] += passed;
  rank_time_.Pass(Seconds(passed));
  for (const Hold& hold : holds_) {
    const auto pool = pools.find(hold.node);
    Held& held = held_[pool == pools.end() ? "default" : pool->second];
    held.core_seconds += hold.resources.cpus * passed;
    held.gpu_seconds += static_cast<double>(hold.gpus.size()) * passed;
  }
}

void JobAccount::NewGeneration(const Job& job) {
  generation_ = job.generation;
  stepping_ = silent_ = false;
  quiet_.reset();
  training_.NewGeneration(job);
  stragglers_.NewGeneration();
}

void JobAccount::OnJob(const Job& before, const Job& after, const Pools& pools,
                       Time now, JobTimings* timings) {
  Advance(now.mono, pools);
  if (after.generation != generation_) NewGeneration(after);
  phases_.OnJob(before, after, now, timings);
  Take(after);
}

void JobAccount::Progress(const CoordinatorView::JobEntry& entry, Time now,
                          JobTimings* timings) {
  const JobSnapshot& snapshot = entry.snapshot;
  if (entry.last_step && (!stepping_ || phases_.launching())) {
    stepping_ = true;
    phases_.OnFirstStep(*snapshot.job, *entry.last_step, now, timings);
  }
  // A program has a limit of its own, which it may have set.
  const bool is_native = snapshot.job->spec.kind == JobKind::kNative;
  quiet_.reset();
  if (snapshot.stall) {
    const Duration still = snapshot.stall->still;
    quiet_ = {still, std::max(Duration{}, still - snapshot.stall->limit)};
  } else if (is_native && entry.last_step &&
             now.mono - *entry.last_step > kQuietTime) {
    quiet_ = {now.mono - *entry.last_step, Duration{}};
  }
  silent_ =
      snapshot.waiting && snapshot.waiting->reason == Reason::kNodeUnknown;
  training_.Take(snapshot);
}

void JobAccount::Look(const CoordinatorView::JobEntry& entry,
                      const Pools& pools, Time now, JobTimings* timings) {
  const Job& job = *entry.snapshot.job;
  if (job.resource_version < version_) return;
  Advance(now.mono, pools);
  if (job.generation != generation_) NewGeneration(job);
  if (job.state == JobState::kRunning || job.state == JobState::kFinishing) {
    for (const auto& [rank, status] : entry.snapshot.live) {
      if (!status.exit) rank_time_.TakePage(rank, status.progress);
    }
    Progress(entry, now, timings);
    stragglers_.Look(entry.snapshot, training_.committed(), now.mono);
  }
  Take(job);
}

}  // namespace lockstep::server
