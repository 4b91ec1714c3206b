#include "server/metrics/phase_timer.h"

namespace lockstep::server {
namespace {

Duration PhaseOf(const Job& job, JobState state) {
  const auto phase = job.phase_durations.find(state);
  return phase == job.phase_durations.end() ? Duration{} : phase->second;
}

Histogram LongHistogram() { return Histogram(kLongBuckets); }

// Returns the recovery phase of the job's state.
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

}  // namespace

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

void PhaseTimer::OnLaunch(const Job& job, JobTimings* timings) {
  const Duration queued =
      PhaseOf(job, JobState::kQueued) + PhaseOf(job, JobState::kPlacing);
  timings->launch.at("queue").Observe(ToSeconds(queued));
  timings->launch.at("stage").Observe(
      ToSeconds(PhaseOf(job, JobState::kPreparing)));
  timings->launch.at("rendezvous")
      .Observe(ToSeconds(PhaseOf(job, JobState::kForming)));
  launching_ = job.spec.kind == JobKind::kNative;
  if (!launching_) {
    timings->launch.at("total").Observe(
        ToSeconds(*job.start_time - job.create_time));
  }
}

void PhaseTimer::OnJob(const Job& before, const Job& after, Time now,
                       JobTimings* timings) {
  in_place_.OnJob(before, after, now.mono, &timings->in_place);
  if (!before.start_time && after.start_time) {
    OnLaunch(after, timings);
  }
  if (after.failing && !before.failing && after.start_time && !recovery_) {
    recovery_ = Recovery{now.mono, now.mono, {}, {}};
    return;
  }
  if (!recovery_ || SamePhase(before, after)) return;
  if (after.failing && !before.failing) {
    // It failed again during the recovery.
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

void PhaseTimer::OnFirstStep(const Job& job, MonoTime step, Time now,
                             JobTimings* timings) {
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

}  // namespace lockstep::server
