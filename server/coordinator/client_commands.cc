// What clients ask for.

#include <filesystem>

#include "server/coordinator/coordinator.h"
#include "server/core/holding.h"
#include "server/core/job_size.h"

namespace lockstep {
namespace {

constexpr size_t kMaxLabels = 64;

// By name: /a/b and /a//b/ are the same.
bool SameDirectory(const std::string& a, const std::string& b) {
  return std::filesystem::path(a + "/").lexically_normal() ==
         std::filesystem::path(b + "/").lexically_normal();
}

StatusOr<Job> Updated(Job job, const JobUpdate& update, const std::string& who,
                      Time now) {
  if (update.version != 0 && update.version != job.resource_version) {
    return WithReason(
        FailedPrecondition("job {} is at version {} by now, not at {}: look "
                           "at it again, then change it",
                           job.spec.name, job.resource_version, update.version),
        "VERSION_CHANGED");
  }
  std::map<std::string, std::string>& labels = job.spec.labels;
  if (update.clear_labels) labels.clear();
  for (const std::string& key : update.remove_labels) labels.erase(key);
  for (const auto& [key, value] : update.set_labels) labels[key] = value;
  if (labels.size() > kMaxLabels) {
    return InvalidArgument(
        "labels: the job would have {}; at most {} are taken", labels.size(),
        kMaxLabels);
  }
  if (!update.priority || *update.priority == job.spec.priority) return job;
  if (IsFinal(job.state)) {
    return FailedPrecondition("priority: job {} has ended", job.spec.name);
  }
  AddEvent(&job, Reason::kNone,
           fmt::format("priority {} instead of {}, by {}", *update.priority,
                       job.spec.priority, who),
           now);
  job.spec.priority = *update.priority;
  return job;
}

}  // namespace

StatusOr<std::optional<std::string>> Coordinator::FindAnswer(
    const RequestKey& request) {
  if (request.id.empty()) return std::optional<std::string>();
  const AnsweredRequest* const known =
      answers_.Find(request.client, request.id);
  if (known == nullptr) return std::optional<std::string>();
  if (known->method != request.method ||
      known->content_hash != request.content_hash) {
    return WithReason(
        InvalidArgument("request_id {} was used for another request: draw a "
                        "new one for each command",
                        request.id),
        "REQUEST_ID_REUSED");
  }
  return std::optional<std::string>(known->response);
}

StatusOr<std::optional<std::string>> Coordinator::AnswerTo(
    const RequestKey& request) {
  MutexLock lock(&mu_);
  return FindAnswer(request);
}

// Commits `job` with the answer to the command that made it so.
StatusOr<std::string> Coordinator::Answer(const RequestKey& request, Job job,
                                          const Encode& encode, Time now) {
  const JobName name = job.spec.name;
  // A command that changes nothing is remembered, but is no change.
  const auto known = jobs_.find(name);
  const bool news = known == jobs_.end() || !(job == *known->second.job);
  if (news) job.resource_version = version_ + 1;
  JobSnapshot snapshot;
  snapshot.job = std::make_shared<const Job>(job);
  snapshot.time = now.wall;
  snapshot.bill = BillOf(job, now);
  std::string response = encode(snapshot);
  std::map<JobName, Job> changed;
  if (news) changed.emplace(name, std::move(job));
  LOCKSTEP_RETURN_IF_ERROR(
      CommitJobs(std::move(changed), Remember(request, response, now), now));
  Touch(name);
  Reconcile(now);
  return response;
}

Status Coordinator::CheckQuota(const std::string& owner, const JobSpec& spec) {
  size_t count = 0;
  size_t bytes = SpecBytes(spec);
  for (const JobName& name : live_) {
    const Entry& entry = jobs_.at(name);
    if (entry.job->owner != owner) continue;
    ++count;
    bytes += entry.spec_bytes;
  }
  if (count >= options_.max_live_jobs_per_user) {
    return WithReason(
        ResourceExhausted(
            "{} has {} jobs that have not ended, and may have {}: "
            "wait for some, or cancel them",
            owner, count, options_.max_live_jobs_per_user),
        "TOO_MANY_JOBS");
  }
  if (bytes <= options_.max_live_bytes_per_user) return OkStatus();
  return WithReason(
      ResourceExhausted(
          "the jobs of {} that have not ended would take {} with this one, and "
          "may take {}: wait for some, or put long arguments and variables "
          "into "
          "files",
          owner, FormatBytes(static_cast<int64_t>(bytes)),
          FormatBytes(static_cast<int64_t>(options_.max_live_bytes_per_user))),
      "TOO_MANY_JOBS");
}

Status Coordinator::CheckNotTaken(const JobSpec& spec) {
  if (jobs_.contains(spec.name)) {
    return WithReason(
        AlreadyExists("there is a job {} already; names are never used twice",
                      spec.name),
        "JOB_EXISTS");
  }
  if (deleted_.contains(spec.name)) {
    return WithReason(
        AlreadyExists("there was a job {}, which was deleted; names are never "
                      "used twice",
                      spec.name),
        "JOB_EXISTS");
  }
  for (const auto& [node, count] : unknown_nodes_) {
    for (const auto& [key, gang] : nodes_[node].gangs) {
      if (gang.job != spec.name || !IsUnknown(gang)) continue;
      return WithReason(
          AlreadyExists("node {} runs a job {} that the coordinator's store "
                        "does not know: choose another name, or drain the node "
                        "with a grace to end it",
                        node, spec.name),
          "JOB_EXISTS");
    }
  }
  // Each would take the other's checkpoints away.
  for (const JobName& name : live_) {
    const JobSpec& other = jobs_.at(name).job->spec;
    if (spec.kind != JobKind::kNative || other.kind != JobKind::kNative ||
        spec.output_directory.empty() ||
        !SameDirectory(spec.output_directory, other.output_directory)) {
      continue;
    }
    return WithReason(
        FailedPrecondition(
            "spec.output_directory: job {}, which has not ended, writes to {}; "
            "give this one a directory of its own, or wait",
            name, other.output_directory),
        "OUTPUT_IN_USE");
  }
  return OkStatus();
}

std::optional<JobName> Coordinator::SharesOutput(const JobSpec& spec) {
  if (spec.output_directory.empty()) return std::nullopt;
  for (const JobName& name : live_) {
    const JobSpec& other = jobs_.at(name).job->spec;
    if (SameDirectory(spec.output_directory, other.output_directory)) {
      return name;
    }
  }
  return std::nullopt;
}

StatusOr<std::string> Coordinator::Submit(const RequestKey& request,
                                          const Submission& submission,
                                          const std::string& owner,
                                          const Encode& encode) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(auto answer, FindAnswer(request));
  if (answer) return *std::move(answer);
  LOCKSTEP_RETURN_IF_ERROR(CheckNotTaken(submission.spec));
  LOCKSTEP_RETURN_IF_ERROR(CheckQuota(owner, submission.spec));
  LOCKSTEP_RETURN_IF_ERROR(CheckCanEverFit(submission.spec, Hosts()));
  const Time now = clock_->Now();
  Job job = NewJob(submission.spec, options_.new_uid(), owner, now);
  job.generation_floor = generation_floor_;
  job.training = submission.training;
  for (const std::string& event : submission.events) {
    AddEvent(&job, Reason::kNone, event, now);
  }
  if (const auto other = SharesOutput(job.spec)) {
    AddEvent(&job, Reason::kNone,
             fmt::format("job {}, which has not ended, writes to {} too: each "
                         "may replace what the other wrote",
                         *other, job.spec.output_directory),
             now);
  }
  return Answer(request, std::move(job), encode, now);
}

StatusOr<std::string> Coordinator::Submit(const RequestKey& request,
                                          const JobSpec& spec,
                                          const std::string& owner,
                                          const Encode& encode) {
  return Submit(request, Submission{spec, std::nullopt, {}}, owner, encode);
}

StatusOr<std::string> Coordinator::Change(
    const RequestKey& request, const JobName& name, const MayChange& may,
    const Encode& encode,
    const std::function<StatusOr<Job>(const Job&, Time)>& change) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(auto answer, FindAnswer(request));
  if (answer) return *std::move(answer);
  LOCKSTEP_ASSIGN_OR_RETURN(Entry * entry, FindEntry(name));
  LOCKSTEP_RETURN_IF_ERROR(may(*entry->job));
  const Time now = clock_->Now();
  LOCKSTEP_ASSIGN_OR_RETURN(Job job, change(*entry->job, now));
  return Answer(request, std::move(job), encode, now);
}

StatusOr<std::string> Coordinator::UpdateJob(const RequestKey& request,
                                             const JobName& name,
                                             const JobUpdate& update,
                                             const MayChange& may,
                                             const Encode& encode) {
  return Change(request, name, may, encode, [&](const Job& job, Time now) {
    return Updated(job, update, request.client, now);
  });
}

StatusOr<std::string> Coordinator::CancelJob(const RequestKey& request,
                                             const JobName& name,
                                             const MayChange& may,
                                             const Encode& encode) {
  return Change(request, name, may, encode, [&](const Job& job, Time now) {
    return Cancel(job, request.client, now);
  });
}

StatusOr<std::string> Coordinator::RequestCheckpoint(const RequestKey& request,
                                                     const JobName& name,
                                                     const MayChange& may,
                                                     const Encode& encode) {
  return Change(request, name, may, encode, AddCheckpointDirective);
}

StatusOr<std::string> Coordinator::RestoreJob(const RequestKey& request,
                                              const JobName& name,
                                              const RestoreTarget& target,
                                              const MayChange& may,
                                              const Encode& encode) {
  return Change(request, name, may, encode, [&](const Job& job, Time now) {
    return RestoreTo(job, target, request.client, now);
  });
}

StatusOr<JobPlan> Coordinator::Plan(const JobSpec& spec,
                                    const std::string& owner) {
  MutexLock lock(&mu_);
  LOCKSTEP_RETURN_IF_ERROR(CheckNotTaken(spec));
  LOCKSTEP_RETURN_IF_ERROR(CheckQuota(owner, spec));
  JobPlan plan;
  plan.never_fits = WhyNeverFits(spec, Hosts());
  if (!plan.never_fits.empty()) return plan;
  const Job job = NewJob(spec, "", "", clock_->Now());
  ScheduleResult result =
      Schedule({{&job, Duration{}, false}}, Hosts(), options_.scheduler);
  if (result.placed.empty()) {
    plan.waiting = result.waiting[spec.name];
  } else {
    plan.placement = std::move(result.placed[0].placement);
  }
  return plan;
}

}  // namespace lockstep
