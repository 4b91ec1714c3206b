// Changes to a job by users and the scheduler.
#include <fmt/format.h>

#include "server/core/generation.h"
#include "server/core/job_roles.h"
#include "server/core/lifecycle.h"
#include "server/core/moving.h"
#include "server/core/work_files.h"

namespace lockstep::server {

Job Place(const Job& before, const std::vector<TaskPlacement>& placement,
          Time now) {
  Job job = before;
  if (job.state == JobState::kQueued) {
    EnterState(&job, JobState::kPlacing, {Reason::kNone, ""}, now);
  }
  job.tasks.clear();
  int32_t rank = 0;
  for (const TaskPlacement& place : placement) {
    TaskStatus task;
    task.type = place.type;
    task.index = place.index;
    task.node = place.node;
    task.gpus = place.gpus;
    for (const RoleSpec& role : job.spec.roles) {
      if (role.type != place.type) continue;
      for (int32_t local = 0; local < role.ranks_per_task; ++local) {
        RankStatus status;
        status.rank = rank++;
        status.local_rank = local;
        task.ranks.push_back(std::move(status));
      }
    }
    job.tasks.push_back(std::move(task));
  }
  StartGeneration(&job, now);
  NoteWorkLeftBehind(&job, now);
  return job;
}

Job NewJob(JobSpec spec, std::string uid, std::string owner, Time now) {
  Job job;
  job.spec = std::move(spec);
  if (job.spec.end_with == EndWith::kUnspecified) {
    job.spec.end_with = DefaultEndWith(job.spec);
  }
  job.uid = std::move(uid);
  job.owner = std::move(owner);
  job.create_time = now.wall;
  job.state_time = now.wall;
  job.cause = {Reason::kNone, "just submitted"};
  AddEvent(&job, Reason::kNone, "submitted by " + job.owner, now);
  return job;
}

Job Cancel(const Job& before, const std::string& who, Time now) {
  if (IsFinal(before.state) || before.cancel_requested) return before;
  Job job = before;
  if (job.state == JobState::kFinishing && !job.failing) {
    if (job.outcome != JobState::kSucceeded) return before;
    // The outcome stands, but running ranks are no longer awaited.
    job.cancel_requested = true;
    AddEvent(&job, Reason::kCancelledByUser,
             fmt::format("{} stopped the ranks that still run", who), now);
    return job;
  }
  job.cancel_requested = true;
  job.cause = {Reason::kCancelledByUser, "cancelled by " + who};
  AddEvent(&job, Reason::kCancelledByUser, job.cause.message, now);
  return job;
}

StatusOr<Job> AddCheckpointDirective(const Job& before, const JobView& view,
                                     Time now) {
  const std::string& name = before.spec.name;
  if (before.spec.kind == JobKind::kNative &&
      before.spec.output_directory.empty()) {
    return WithReason(
        FailedPrecondition("job {} has no output directory for checkpoints",
                           name),
        "NO_OUTPUT_DIRECTORY");
  }
  if (before.state != JobState::kRunning || before.failing) {
    return WithReason(FailedPrecondition("job {} is {}, not RUNNING", name,
                                         Name(before.state)),
                      "NOT_RUNNING");
  }
  if (const auto missing = NotJoined(before, view); !missing.empty()) {
    return WithReason(
        FailedPrecondition(
            "{} of program {} has not joined: each rank calls lockstep.join() "
            "and, after each step, session.checkpoint_due()",
            RankLabel(before, missing.front()), name),
        "NOT_JOINED");
  }
  constexpr size_t kMaxPending = 16;
  if (before.directives.size() >= kMaxPending ||
      before.next_directive > kMaxDirective) {
    return WithReason(
        FailedPrecondition(
            "job {} has {} pending checkpoint requests "
            "and had {} in this generation: wait for one of them",
            name, before.directives.size(), before.next_directive - 1),
        "TOO_MANY_CHECKPOINTS");
  }
  Job job = before;
  job.directives.push_back({job.next_directive++, DirectiveKind::kCheckpoint});
  AddEvent(&job, Reason::kNone, "checkpoint requested", now);
  return job;
}

}  // namespace lockstep::server
