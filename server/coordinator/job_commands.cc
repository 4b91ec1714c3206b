#include "server/coordinator/job_commands.h"

#include <filesystem>
#include <memory>
#include <utility>

#include "common/base/logging.h"
#include "server/core/job_size.h"
#include "server/core/rescale.h"

namespace lockstep::server {
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
        "labels: the job would have {}; at most {} are allowed", labels.size(),
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

StatusOr<std::optional<std::string>> JobCommands::AnswerTo(
    const RequestKey& request) {
  MutexLock lock(&mu_);
  return parts_.writer->answers().AnswerTo(request);
}

StatusOr<std::string> JobCommands::Answer(const RequestKey& request, Job job,
                                          const Encode& encode, Time now) {
  const JobName name = job.spec.name;
  // A command that changes nothing is remembered, but is no change.
  const JobEntry* const known = parts_.state->jobs.Find(name);
  const bool news = known == nullptr || !(job == *known->job);
  if (news) job.resource_version = parts_.writer->version() + 1;
  JobSnapshot snapshot;
  snapshot.job = std::make_shared<const Job>(job);
  snapshot.time = now.wall;
  snapshot.bill = parts_.billing->BillOf(job, now);
  std::string response = encode(snapshot);
  std::map<JobName, Job> changed;
  if (news) changed.emplace(name, std::move(job));
  LOCKSTEP_RETURN_IF_ERROR(parts_.committer->CommitJobs(
      std::move(changed), AnsweredWith(request, response, now.wall), now));
  parts_.state->agenda.jobs.insert(name);
  parts_.reconciler->Reconcile(now);
  return response;
}

Status JobCommands::CheckQuota(const std::string& owner,
                               const JobSpec& spec) const {
  const JobRegistry& jobs = parts_.state->jobs;
  const QuotaLimits& limits = parts_.options->limits.per_user;
  size_t count = 0;
  size_t bytes = SpecBytes(spec);
  for (const JobName& name : jobs.live()) {
    const JobEntry& entry = jobs.At(name);
    if (entry.job->owner != owner) continue;
    ++count;
    bytes += entry.spec_bytes;
  }
  if (count >= limits.jobs) {
    return WithReason(
        ResourceExhausted(
            "{} has {} jobs that have not ended, and may have {}: "
            "wait for some, or cancel them",
            owner, count, limits.jobs),
        "TOO_MANY_JOBS");
  }
  if (bytes <= limits.bytes) return OkStatus();
  return WithReason(
      ResourceExhausted(
          "the jobs of {} that have not ended would take {} with this one, and "
          "may take {}: wait for some, or put long arguments and variables "
          "into "
          "files",
          owner, FormatBytes(static_cast<int64_t>(bytes)),
          FormatBytes(static_cast<int64_t>(limits.bytes))),
      "TOO_MANY_JOBS");
}

Status JobCommands::CheckNotTaken(const JobSpec& spec) const {
  const JobRegistry& jobs = parts_.state->jobs;
  if (jobs.Find(spec.name) != nullptr) {
    return WithReason(
        AlreadyExists("there is a job {} already; names are never used twice",
                      spec.name),
        "JOB_EXISTS");
  }
  if (jobs.IsDeleted(spec.name)) {
    return WithReason(
        AlreadyExists("there was a job {}, which was deleted; names are never "
                      "used twice",
                      spec.name),
        "JOB_EXISTS");
  }
  if (const auto node = parts_.guard->FindUnknown(spec.name)) {
    return WithReason(
        AlreadyExists("node {} runs a job {} that the coordinator's store "
                      "does not know: choose another name, or drain the node "
                      "with a grace to end it",
                      *node, spec.name),
        "JOB_EXISTS");
  }
  // Each would take the other's checkpoints away.
  for (const JobName& name : jobs.live()) {
    const JobSpec& other = jobs.At(name).job->spec;
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

std::optional<JobName> JobCommands::SharesOutput(const JobSpec& spec) const {
  const JobRegistry& jobs = parts_.state->jobs;
  if (spec.output_directory.empty()) return std::nullopt;
  for (const JobName& name : jobs.live()) {
    const JobSpec& other = jobs.At(name).job->spec;
    if (SameDirectory(spec.output_directory, other.output_directory)) {
      return name;
    }
  }
  return std::nullopt;
}

StatusOr<std::string> JobCommands::Submit(const RequestKey& request,
                                          const Submission& submission,
                                          const std::string& owner,
                                          const Encode& encode) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(auto answer,
                            parts_.writer->answers().AnswerTo(request));
  if (answer) return *std::move(answer);
  LOCKSTEP_RETURN_IF_ERROR(CheckNotTaken(submission.spec));
  LOCKSTEP_RETURN_IF_ERROR(CheckQuota(owner, submission.spec));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckCanEverFit(submission.spec, parts_.scheduler->Hosts()));
  const Time now = parts_.clock->Now();
  Job job = NewJob(submission.spec, parts_.options->new_uid(), owner, now);
  job.generation_floor = parts_.identity->generation_floor;
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

StatusOr<std::string> JobCommands::Submit(const RequestKey& request,
                                          const JobSpec& spec,
                                          const std::string& owner,
                                          const Encode& encode) {
  return Submit(request, Submission{spec, std::nullopt, {}}, owner, encode);
}

StatusOr<std::string> JobCommands::Change(
    const RequestKey& request, const JobName& name, const JobCheck& may,
    const Encode& encode,
    const std::function<StatusOr<Job>(const Job&, Time)>& change) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(auto answer,
                            parts_.writer->answers().AnswerTo(request));
  if (answer) return *std::move(answer);
  LOCKSTEP_ASSIGN_OR_RETURN(const JobEntry* entry,
                            parts_.state->jobs.Get(name));
  LOCKSTEP_RETURN_IF_ERROR(may(*entry->job));
  const Time now = parts_.clock->Now();
  LOCKSTEP_ASSIGN_OR_RETURN(Job job, change(*entry->job, now));
  return Answer(request, std::move(job), encode, now);
}

StatusOr<std::string> JobCommands::UpdateJob(const RequestKey& request,
                                             const JobName& name,
                                             const JobUpdate& update,
                                             const JobCheck& may,
                                             const Encode& encode) {
  return Change(request, name, may, encode, [&](const Job& job, Time now) {
    return Updated(job, update, request.client, now);
  });
}

StatusOr<std::string> JobCommands::CancelJob(const RequestKey& request,
                                             const JobName& name,
                                             const JobCheck& may,
                                             const Encode& encode) {
  return Change(request, name, may, encode, [&](const Job& job, Time now) {
    return Cancel(job, request.client, now);
  });
}

StatusOr<std::string> JobCommands::RequestCheckpoint(const RequestKey& request,
                                                     const JobName& name,
                                                     const JobCheck& may,
                                                     const Encode& encode) {
  return Change(
      request, name, may, encode,
      [&](const Job& job, Time now) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return AddCheckpointDirective(
            job,
            parts_.reconciler->views().ViewOf(parts_.state->jobs.At(name), now),
            now);
      });
}

StatusOr<std::string> JobCommands::RestoreJob(const RequestKey& request,
                                              const JobName& name,
                                              const RestoreTarget& target,
                                              const JobCheck& may,
                                              const Encode& encode) {
  return Change(request, name, may, encode, [&](const Job& job, Time now) {
    return RestoreTo(job, target, request.client, now);
  });
}

StatusOr<std::string> JobCommands::ResizeJob(const RequestKey& request,
                                             const JobName& name, int32_t tasks,
                                             const JobCheck& may,
                                             const Encode& encode) {
  return Change(request, name, may, encode, [&](const Job& job, Time now) {
    return ResizeTo(job, tasks, request.client, now);
  });
}

StatusOr<std::string> JobCommands::DeleteJob(const RequestKey& request,
                                             const JobName& name,
                                             const JobCheck& may,
                                             const std::string& answer) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(auto known,
                            parts_.writer->answers().AnswerTo(request));
  if (known) return *std::move(known);
  LOCKSTEP_ASSIGN_OR_RETURN(const JobEntry* entry,
                            parts_.state->jobs.Get(name));
  LOCKSTEP_RETURN_IF_ERROR(may(*entry->job));
  if (!IsFinal(entry->job->state)) {
    return WithReason(
        FailedPrecondition("job {} is {} and has not ended: cancel it first",
                           name, Name(entry->job->state)),
        "NOT_ENDED");
  }
  LOCKSTEP_RETURN_IF_ERROR(parts_.committer->CommitDeletion(
      {name}, AnsweredWith(request, answer, parts_.clock->Now().wall)));
  LOG_INFO("job {}: deleted by {}", name, request.client);
  return answer;
}

void JobCommands::RecordSession(const FoundRanks& ranks,
                                const std::string& what, bool once) {
  MutexLock lock(&mu_);
  JobEntry* const entry = parts_.state->jobs.Find(ranks.job);
  if (entry == nullptr || entry->job->uid != ranks.job_uid ||
      IsFinal(entry->job->state)) {
    return;
  }
  Job job = *entry->job;
  const auto known = std::count_if(
      job.events.begin(), job.events.end(),
      [](const Event& e) { return e.reason == Reason::kSession; });
  if (known >= kMaxSessionEvents) return;
  const std::string text =
      known + 1 < kMaxSessionEvents
          ? what
          : what + "; the audit log has this and all later ones";
  const Time now = parts_.clock->Now();
  const size_t before = job.events.size();
  if (once) {
    AddEventOnce(&job, Reason::kSession, text, now);
  } else {
    AddEvent(&job, Reason::kSession, text, now);
  }
  if (once && job.events.size() == before) return;
  std::map<JobName, Job> changed;
  changed.emplace(ranks.job, std::move(job));
  if (const Status stored =
          parts_.committer->CommitJobs(std::move(changed), std::nullopt, now);
      !stored.ok()) {
    LOG_WARN("job {}: its history lacks \"{}\": {}", ranks.job, what,
             Message(stored));
  }
}

void JobCommands::RecordVerdict(const FoundRanks& ranks,
                                const HangVerdict& verdict) {
  MutexLock lock(&mu_);
  JobEntry* const entry = parts_.state->jobs.Find(ranks.job);
  if (entry == nullptr || entry->job->uid != ranks.job_uid ||
      IsFinal(entry->job->state)) {
    return;
  }
  Job job = *entry->job;
  const bool runs = job.generation == ranks.generation && !job.failing;
  if (runs) {
    entry->noted.stall_verdict = verdict.sentence;
    entry->noted.stall_causes =
        std::set<int32_t>(verdict.cause.begin(), verdict.cause.end());
  }
  const Time now = parts_.clock->Now();
  AddEvent(&job, Reason::kNoProgress,
           runs ? verdict.sentence : "when it stood still: " + verdict.sentence,
           now);
  job.events.back().generation = ranks.generation;
  std::map<JobName, Job> changed;
  changed.emplace(ranks.job, std::move(job));
  // The evidence itself is kept, so that a failed commit loses little.
  if (const Status stored =
          parts_.committer->CommitJobs(std::move(changed), std::nullopt, now);
      !stored.ok()) {
    LOG_WARN("job {}: the verdict about its stall is not stored: {}", ranks.job,
             Message(stored));
  }
}

StatusOr<JobPlan> JobCommands::Plan(const JobSpec& spec,
                                    const std::string& owner) {
  MutexLock lock(&mu_);
  LOCKSTEP_RETURN_IF_ERROR(CheckNotTaken(spec));
  LOCKSTEP_RETURN_IF_ERROR(CheckQuota(owner, spec));
  JobPlan plan;
  plan.never_fits = WhyNeverFits(spec, parts_.scheduler->Hosts());
  if (!plan.never_fits.empty()) return plan;
  const Job job = NewJob(spec, "", "", parts_.clock->Now());
  ScheduleResult result =
      Schedule({{&job, Duration{}, false}}, parts_.scheduler->Hosts(),
               parts_.options->scheduler);
  if (result.placed.empty()) {
    plan.waiting = result.waiting[spec.name];
  } else {
    plan.placement = std::move(result.placed[0].placement);
  }
  return plan;
}

}  // namespace lockstep::server
