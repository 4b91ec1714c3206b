#include "server/metrics/job_account.h"

#include <algorithm>
#include <vector>

namespace lockstep {
namespace {

// Ranks are compared over at least so much.
constexpr Duration kWindow = std::chrono::seconds(20);
constexpr int64_t kWindowSteps = 20;
// A rank is late when the others waited for it for this part of the time and
// it did not wait for them.
constexpr double kLatePart = 0.05;

Duration PhaseOf(const Job& job, JobState state) {
  const auto phase = job.phase_durations.find(state);
  return phase == job.phase_durations.end() ? Duration{} : phase->second;
}

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
      return RestartReason::kUser;
    default:
      return RestartReason::kOther;
  }
}

Histogram LongHistogram() { return Histogram(kLongBuckets); }

// What the time of a recovery is spent on in this state of the job.
const char* RecoveryPhase(const Job& job) {
  if (job.failing) return "teardown";
  switch (job.state) {
    case JobState::kPlacing:
      return "reschedule";
    case JobState::kPreparing:
      return "stage";
    default:
      return "rendezvous";
  }
}

bool SamePhase(const Job& a, const Job& b) {
  return a.state == b.state && a.generation == b.generation &&
         a.failing.has_value() == b.failing.has_value();
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle =
      values.begin() + static_cast<ptrdiff_t>(values.size()) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::string_view Name(TimeState state) {
  static constexpr std::string_view kNames[] = {
      "queued",  "launching",  "productive", "recomputed",
      "stalled", "recovering", "finishing"};
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
  // Of attempts that are no longer kept.
  restarts[static_cast<size_t>(RestartReason::kOther)] +=
      std::max<int64_t>(0, job.restarts - known);
  return restarts;
}

JobTimings::JobTimings() {
  for (const char* phase :
       {"queue", "stage", "rendezvous", "first_step", "total"}) {
    launch.emplace(phase, LongHistogram());
  }
  for (const char* phase :
       {"teardown", "reschedule", "stage", "rendezvous", "restore", "total"}) {
    recovery.emplace(phase, LongHistogram());
  }
}

JobAccount::JobAccount(const Job& job, Time now) : advanced_(now.mono) {
  generation_ = job.generation;
  // One that was found running: whether it steps is not known yet.
  stepping_ = job.state == JobState::kRunning;
  committed_ = std::max<int64_t>(0, job.committed_step.value_or(0));
  redo_until_ = std::max<int64_t>(0, job.committed_before);
  checkpoint_ = job.last_checkpoint;
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
  if (job.failing) return TimeState::kRecovering;
  if (job.spec.kind == JobKind::kProgram) return TimeState::kProductive;
  if (!stepping_) {
    return job.restarts > 0 || job.attempt > 1 ? TimeState::kRecovering
                                               : TimeState::kLaunching;
  }
  if (quiet_) return TimeState::kStalled;
  return committed_ < redo_until_ ? TimeState::kRecomputed
                                  : TimeState::kProductive;
}

void JobAccount::Take(const Job& job) {
  version_ = job.resource_version;
  holds_ = job.holds;
  state_ = StateOf(job);
  for (const NodeName& node : NodesOf(job)) {
    straggler_events_.try_emplace(node, 0);
  }
  if (job.last_checkpoint &&
      (!checkpoint_ || !(*job.last_checkpoint == *checkpoint_))) {
    ++checkpoints_;
    checkpoint_bytes_ +=
        static_cast<double>(std::max<int64_t>(0, job.last_checkpoint->bytes));
    checkpoint_ = job.last_checkpoint;
  }
}

void JobAccount::Advance(MonoTime now, const Pools& pools) {
  const double passed = ToSeconds(std::max(Duration{}, now - advanced_));
  advanced_ = std::max(advanced_, now);
  seconds_[static_cast<size_t>(state_)] += passed;
  for (const Hold& hold : holds_) {
    const auto pool = pools.find(hold.node);
    Held& held = held_[pool == pools.end() ? "default" : pool->second];
    held.core_seconds += hold.resources.cpus * passed;
    held.gpu_seconds += static_cast<double>(hold.gpus.size()) * passed;
  }
}

void JobAccount::NewGeneration(const Job& job) {
  generation_ = job.generation;
  fresh_ = true;
  redo_until_ = std::max(redo_until_, committed_);
  stepping_ = quiet_ = false;
  // Its processes begin at 0, but for the step.
  steps_.last.reset();
  samples_.last = 0;
  stall_.last = 0;
  window_.reset();
  wait_ratio_.reset();
  late_rank_.reset();
  late_ranks_.clear();
}

void JobAccount::Transition(const Job& before, const Job& after, Time now,
                            JobTimings* timings) {
  if (!before.start_time && after.start_time) {
    const Duration queued =
        PhaseOf(after, JobState::kQueued) + PhaseOf(after, JobState::kPlacing);
    timings->launch.at("queue").Observe(ToSeconds(queued));
    timings->launch.at("stage").Observe(
        ToSeconds(PhaseOf(after, JobState::kPreparing)));
    timings->launch.at("rendezvous")
        .Observe(ToSeconds(PhaseOf(after, JobState::kForming)));
    launching_ = after.spec.kind == JobKind::kNative;
    if (!launching_) {
      timings->launch.at("total").Observe(
          ToSeconds(*after.start_time - after.create_time));
    }
  }
  if (after.failing && !before.failing && after.start_time && !recovery_) {
    recovery_ = Recovery{now.mono, now.mono, {}, {}};
    return;
  }
  if (!recovery_ || SamePhase(before, after)) return;
  if (after.failing && !before.failing) {
    // It failed again before it was well.
    recovery_->running_since.reset();
  }
  if (before.failing || before.state != JobState::kRunning) {
    recovery_->phases[RecoveryPhase(before)] +=
        ToSeconds(now.mono - recovery_->phase_since);
  }
  recovery_->phase_since = now.mono;
  if (IsFinal(after.state) || after.state == JobState::kFinishing) {
    recovery_.reset();
    return;
  }
  if (after.state != JobState::kRunning || after.failing) return;
  for (const char* phase : {"teardown", "reschedule", "stage", "rendezvous"}) {
    timings->recovery.at(phase).Observe(recovery_->phases[phase]);
  }
  recovery_->running_since = now.mono;
  if (after.spec.kind == JobKind::kProgram) {
    timings->recovery.at("total").Observe(
        ToSeconds(now.mono - recovery_->began));
    recovery_.reset();
  }
}

void JobAccount::OnJob(const Job& before, const Job& after, const Pools& pools,
                       Time now, JobTimings* timings) {
  Advance(now.mono, pools);
  if (after.generation != generation_) NewGeneration(after);
  Transition(before, after, now, timings);
  Take(after);
}

void JobAccount::FirstStep(const Job& job, MonoTime step, Time now,
                           JobTimings* timings) {
  stepping_ = true;
  if (launching_ && job.start_time) {
    launching_ = false;
    const WallTime wall = now.wall - (now.mono - step);
    timings->launch.at("first_step").Observe(ToSeconds(wall - *job.start_time));
    timings->launch.at("total").Observe(ToSeconds(wall - job.create_time));
  }
  if (recovery_ && recovery_->running_since) {
    timings->recovery.at("restore").Observe(
        ToSeconds(step - *recovery_->running_since));
    timings->recovery.at("total").Observe(ToSeconds(step - recovery_->began));
    recovery_.reset();
  }
}

void JobAccount::Progress(const CoordinatorView::JobEntry& entry, Time now,
                          JobTimings* timings) {
  const JobSnapshot& snapshot = entry.snapshot;
  const Job& job = *snapshot.job;
  if (entry.last_step && (!stepping_ || launching_)) {
    FirstStep(job, *entry.last_step, now, timings);
  }
  quiet_ = snapshot.stall.has_value() ||
           (entry.last_step && now.mono - *entry.last_step > kQuietTime);
  if (snapshot.live.empty()) return;
  double samples = 0;
  for (const auto& [number, rank] : snapshot.live) {
    samples += static_cast<double>(rank.progress.samples);
  }
  const double counted = samples_.total;
  samples_.Take(samples);
  const auto chief = snapshot.live.find(0);
  if (chief == snapshot.live.end()) return;
  const RankProgress& said = chief->second.progress;
  if (const auto each = said.values.find(kFlopsPerSample);
      each != said.values.end() && each->second > 0) {
    flops_ = flops_.value_or(0) + (samples_.total - counted) * each->second;
  }
  stall_.Take(said.phases.checkpoint);
  const int64_t start =
      job.lineage.empty() || job.lineage.back().generation != generation_
          ? 0
          : std::max<int64_t>(0, job.lineage.back().start_step);
  // Before it said where it starts, it has done nothing.
  if (said.committed_step < start) return;
  committed_ = said.committed_step;
  if (!steps_.last) {
    // Where the start is not known, from here on.
    const bool known = fresh_ && (start > 0 || redo_until_ == 0);
    steps_.last = static_cast<double>(known ? start : committed_);
  }
  steps_.Take(static_cast<double>(committed_));
}

void JobAccount::WatchRanks(const CoordinatorView::JobEntry& entry,
                            MonoTime now) {
  const Job& job = *entry.snapshot.job;
  if (job.state != JobState::kRunning || job.failing ||
      job.spec.kind != JobKind::kNative || entry.snapshot.live.empty()) {
    window_.reset();
    return;
  }
  Window current{now, committed_, {}};
  for (const auto& [number, rank] : entry.snapshot.live) {
    const PhaseSeconds& phases = rank.progress.phases;
    if (phases.Sum() > 0 && !rank.exit) {
      current.ranks[number] = {phases.straggler_wait, phases.Sum()};
    }
  }
  if (!window_ && current.ranks.size() < 2) return;
  if (window_ && (now - window_->since < kWindow ||
                  committed_ - window_->step < kWindowSteps)) {
    return;
  }
  if (window_) CloseWindow(job, current);
  window_ = std::move(current);
}

void JobAccount::CloseWindow(const Job& job, const Window& end) {
  wait_ratio_.reset();
  late_rank_.reset();
  std::map<int32_t, double> waited;
  double waits = 0, total = 0;
  for (const auto& [rank, now] : end.ranks) {
    const auto then = window_->ranks.find(rank);
    if (then == window_->ranks.end()) continue;
    waited[rank] = std::max(0.0, now.first - then->second.first);
    waits += waited[rank];
    total += std::max(0.0, now.second - then->second.second);
  }
  if (waited.size() < 2 || total <= 0) return;
  wait_ratio_ = std::min(1.0, waits / total);
  const auto late = std::min_element(
      waited.begin(), waited.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<double> others;
  for (const auto& [rank, wait] : waited) {
    if (rank != late->first) others.push_back(wait);
  }
  const double each = total / static_cast<double>(waited.size());
  if (Median(others) - late->second <= kLatePart * each) return;
  late_rank_ = late->first;
  for (const TaskStatus& task : job.tasks) {
    for (const RankStatus& rank : task.ranks) {
      if (rank.rank != *late_rank_) continue;
      ++straggler_events_[task.node];
      late_ranks_[task.node] = rank.rank;
    }
  }
}

void JobAccount::Look(const CoordinatorView::JobEntry& entry,
                      const Pools& pools, Time now, JobTimings* timings) {
  const Job& job = *entry.snapshot.job;
  if (job.resource_version < version_) return;
  Advance(now.mono, pools);
  if (job.generation != generation_) NewGeneration(job);
  if (job.state == JobState::kRunning || job.state == JobState::kFinishing) {
    Progress(entry, now, timings);
    WatchRanks(entry, now.mono);
  }
  Take(job);
}

}  // namespace lockstep
