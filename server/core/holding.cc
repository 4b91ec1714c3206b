#include "server/core/holding.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/core/reports.h"
#include "server/core/transitions.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;

constexpr Duration kFirstLook = 1s;
constexpr Duration kLastLook = 30s;

// Removes the events of a look without a new result.
void ForgetLook(Job* job, Reason reason) {
  ForgetEvents(job);
  // The newest attempt represents all looks of this hold.
  const size_t count = job->attempts.size();
  if (count >= 2 && job->attempts[count - 2].end_cause.reason == reason) {
    job->attempts.erase(job->attempts.end() - 2);
  }
}

// "lockstep jobs restore-to dead start".
std::string HowToGoOn(const Job& job) {
  const std::string& name = job.spec.name;
  if (job.spec.kind == JobKind::kProgram) {
    return fmt::format(
        "`lockstep jobs restore-to {} start` starts from the beginning", name);
  }
  return fmt::format(
      "`lockstep jobs restore-to {} STEP` resumes from another checkpoint, "
      "`start` starts from the beginning",
      name);
}

Status NotHolding(const Job& job) {
  if (IsFinal(job.state)) {
    return FailedPrecondition("job {} has ended: it is {}", job.spec.name,
                              Name(job.state));
  }
  return WithReason(
      FailedPrecondition(
          "job {} is {} and not held: only a job that waits for its "
          "output directory or for a checkpoint accepts a target to resume "
          "from",
          job.spec.name, Name(job.state)),
      "NOT_HOLDING");
}

Status CheckTarget(const Job& job, const RestoreTarget& target) {
  if (!job.output_hold || !IsHoldReason(job.output_hold->reason) ||
      IsFinal(job.state)) {
    return NotHolding(job);
  }
  if (job.outcome || job.cancel_requested) {
    return FailedPrecondition("job {} is ending: it does not resume",
                              job.spec.name);
  }
  if (job.spec.kind == JobKind::kProgram && !target.from_start()) {
    return WithReason(
        FailedPrecondition(
            "job {} is a program: lockstep does not know its checkpoints; only "
            "`start` is allowed, and the program itself finds what it resumes "
            "from",
            job.spec.name),
        "NOT_NATIVE");
  }
  return OkStatus();
}

}  // namespace

bool IsHoldReason(Reason reason) {
  return reason == Reason::kOutputMissing || reason == Reason::kNoCheckpoint;
}

Duration LookBackoff(int32_t looks) {
  Duration wait = kFirstLook;
  for (int32_t i = 1; i < looks && wait < kLastLook; ++i) wait *= 2;
  return std::min(wait, kLastLook);
}

void EnterHold(Job* job, const Failure& failure, Time now) {
  const Reason reason = failure.cause.reason;
  const bool again = job->output_hold && job->output_hold->reason == reason;
  if (!again) job->output_hold = OutputHold{reason, 0, now.wall};
  const Duration wait = LookBackoff(++job->output_hold->looks);
  job->failing.reset();
  job->not_before = now.wall + wait;
  EnterState(
      job, JobState::kPlacing,
      {reason, fmt::format("{}; the job is held and checks again every {} "
                           "at most; {}",
                           Shorten(failure.cause.message, 1200),
                           FormatDuration(kLastLook), HowToGoOn(*job))},
      now);
  if (again) ForgetLook(job, reason);
}

void HoldForming(Job* job, const std::string& lost, Duration wait, Time now) {
  if (!job->output_hold || job->output_hold->reason != Reason::kCannotForm) {
    job->output_hold = OutputHold{Reason::kCannotForm, 0, now.wall};
  }
  ++job->output_hold->looks;
  job->failing.reset();
  job->not_before = now.wall + wait;
  EnterState(job, JobState::kPlacing,
             {Reason::kCannotForm,
              fmt::format("{}; the job is placed on other nodes in {}",
                          Shorten(lost, 1200), FormatDuration(wait))},
             now);
}

void LeaveForming(Job* job, Time now) {
  if (!job->output_hold || job->output_hold->reason != Reason::kCannotForm) {
    return;
  }
  const Duration held = now.wall - job->output_hold->since;
  if (held < kFormingPatience) return;
  job->output_hold.reset();
  EnterState(job, JobState::kQueued,
             {Reason::kCannotForm,
              fmt::format("could not form for {}: it waits in the queue",
                          FormatDuration(held))},
             now);
}

void EndHold(Job* job, const JobView& view, Time now) {
  if (!job->output_hold) return;
  const bool resumed = !job->lineage.empty() &&
                       job->lineage.back().start_step != LineageEntry::kNotSaid;
  const bool goes_on = job->spec.kind == JobKind::kProgram || resumed ||
                       HighestCommitted(*job, view) >= 0;
  if (!goes_on) return;
  const Duration held = now.wall - job->output_hold->since;
  AddEvent(job, Reason::kRunning,
           fmt::format("continues after a hold of {}",
                       FormatDuration(std::max(Duration{}, held))),
           now);
  job->output_hold.reset();
}

StatusOr<Job> RestoreTo(const Job& before, const RestoreTarget& target,
                        const std::string& who, Time now) {
  LOCKSTEP_RETURN_IF_ERROR(CheckTarget(before, target));
  Job job = before;
  const bool anew =
      target.from_start() && job.output_hold->reason == Reason::kOutputMissing;
  std::string what = target.from_start()
                         ? std::string("start from the beginning")
                         : fmt::format("resume from step {}", *target.step);
  if (anew) what += ", in the present output directory";
  const std::string sentence = fmt::format("{}, by {}", what, who);
  // Programs have no checkpoints.
  if (job.spec.kind == JobKind::kNative) {
    job.restore = target;
    // Steps computed again from there count as progress.
    job.committed_step = target.step.value_or(0);
  }
  if (anew) job.output_identity.clear();
  job.output_hold->looks = 0;
  if (IsActive(job.state) && !job.failing) {
    Fail(&job, {Reason::kRestoreOrdered, sentence}, now);
    return job;
  }
  AddEvent(&job, Reason::kRestoreOrdered, sentence, now);
  // The look is already being stopped.
  if (IsActive(job.state)) return job;
  job.cause = {Reason::kRestoreOrdered, sentence};
  job.not_before.reset();
  return job;
}

}  // namespace lockstep::server
