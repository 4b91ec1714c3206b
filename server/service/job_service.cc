#include "server/service/job_service.h"

#include <memory>

#include "common/rpc/caller.h"
#include "common/rpc/status_conversion.h"
#include "common/wire/job_wire.h"
#include "server/core/bill.h"
#include "server/log_stream/log_request.h"
#include "server/log_stream/log_stream.h"
#include "server/query/job_filter.h"
#include "server/query/page.h"
#include "server/service/job_watch.h"
#include "server/service/messages.h"
#include "server/service/request.h"
#include "server/service/submission.h"
#include "server/stream/stream_reactor.h"

namespace lockstep::server {
namespace {

constexpr int32_t kMaxPriority = 1000;

JobCheck OwnerCheck(const grpc::ServerContextBase& context) {
  const pki::Identity caller = CallerOf(context);
  return [caller](const Job& job) {
    if (caller.IsAdmin() || OwnerName(caller) == job.owner) return OkStatus();
    return PermissionDenied(
        "job {} belongs to {}: only the owner and admins may change it",
        job.spec.name, job.owner);
  };
}

// True if packages of the job are or will be stored. A training job names its
// packages only after their upload.
bool BringsPackages(const v1::SubmitJobRequest& request, const JobSpec& spec) {
  return !spec.packages.empty() ||
         (request.has_training() && !spec.roles.front().container);
}

// PermissionDenied if `priority` exceeds the limit `most` of submitters.
Status CheckPriority(const pki::Identity& caller, int32_t priority,
                     int32_t most) {
  if (caller.IsAdmin() || priority <= most) {
    return OkStatus();
  }
  return WithReason(
      PermissionDenied(
          "priority: {} is more than the limit {} of {}; ask an admin "
          "to raise it (lockstep jobs update JOB --priority {}), or the site "
          "to raise max_submitter_priority",
          priority, most, Describe(caller), priority),
      "PRIORITY_TOO_HIGH");
}

// Handles validate_only.
Status MakePlan(JobCommands* commands, const JobSpec& spec,
                const std::string& owner, v1::SubmitJobResponse* response) {
  LOCKSTEP_ASSIGN_OR_RETURN(const JobPlan plan, commands->Plan(spec, owner));
  for (const std::string& reason : plan.never_fits) {
    response->add_never_fits(reason);
  }
  for (const TaskPlacement& place : plan.placement) {
    TaskStatus task;
    task.type = place.type;
    task.index = place.index;
    task.node = place.node;
    task.gpus = place.gpus;
    *response->add_placement() = ToProto(task);
  }
  if (plan.placement.empty() && plan.never_fits.empty()) {
    *response->mutable_waiting() = ToProto(plan.waiting);
  }
  *response->mutable_job()->mutable_spec() = ToProto(spec);
  response->mutable_job()->set_name(spec.name);
  return OkStatus();
}

std::string Encoded(const JobSnapshot& snapshot) {
  return ToMessage(snapshot).SerializeAsString();
}

grpc::Status DoRestore(JobCommands* commands,
                       const grpc::ServerContextBase& context,
                       const v1::RestoreJobRequest& request,
                       v1::Job* response) {
  if (Status s = CheckJobName(request.name()); !s.ok()) return ToGrpc(s);
  const auto key = KeyOf(context, request, "RestoreJob");
  if (!key.ok()) return ToGrpc(key.status());
  const auto target = FromProto(request.target(), "target");
  if (!target.ok()) return ToGrpc(target.status());
  return Reply(commands->RestoreJob(*key, request.name(), *target,
                                    OwnerCheck(context), Encoded),
               response);
}

grpc::Status DoResize(JobCommands* commands,
                      const grpc::ServerContextBase& context,
                      const v1::ResizeJobRequest& request, v1::Job* response) {
  if (Status s = CheckJobName(request.name()); !s.ok()) return ToGrpc(s);
  const auto key = KeyOf(context, request, "ResizeJob");
  if (!key.ok()) return ToGrpc(key.status());
  return Reply(commands->ResizeJob(*key, request.name(), request.tasks(),
                                   OwnerCheck(context), Encoded),
               response);
}

}  // namespace

JobReader JobService::ReaderFor(const grpc::ServerContextBase& context) const {
  const pki::Identity caller = CallerOf(context);
  return ReaderOf(OwnerName(caller), caller.IsAdmin(),
                  site_->Get()->visibility);
}

Status JobService::CheckPackages(const JobSpec& spec, const PackageUser& user) {
  for (size_t i = 0; i < spec.packages.size(); ++i) {
    const Package& package = spec.packages[i];
    if (packages_->Keep(user, package)) continue;
    return WithReason(
        FailedPrecondition("packages[{}]: {} ({}, {} bytes) is not stored for "
                           "{}: upload it first",
                           i, package.file_name, package.digest, package.bytes,
                           user.name),
        "PACKAGE_MISSING");
  }
  return OkStatus();
}

grpc::Status JobService::DoSubmitJob(grpc::ServerContextBase* context,
                                     const v1::SubmitJobRequest* request,
                                     v1::SubmitJobResponse* response) {
  const auto key = KeyOf(*context, *request, "SubmitJob");
  if (key.ok() && !request->validate_only()) {
    // The site's tables may have changed since, or packages may be gone.
    const auto known = commands_->AnswerTo(*key);
    if (!known.ok()) return ToGrpc(known.status());
    if (*known) return Reply<v1::SubmitJobResponse>(**known, response);
  }
  StatusOr<Submitted> submitted = ReadSubmission(*request, *site_->Get());
  if (!submitted.ok()) return ToGrpc(submitted.status());
  if (Status s = CheckJobSize(submitted->job); !s.ok()) return ToGrpc(s);
  const JobSpec& spec = submitted->job.spec;
  if (Status s = CheckPriority(CallerOf(*context), spec.priority,
                               options_.max_submitter_priority);
      !s.ok()) {
    return ToGrpc(s);
  }
  v1::SubmitJobResponse answer;
  for (const std::string& note : submitted->notes) answer.add_notes(note);
  if (const auto units = MlUnitsPerHour(spec)) {
    answer.set_ml_units_per_hour(*units);
  }
  const Prices prices = queries_->prices();
  answer.set_cost_per_hour(CostPerHour(spec, prices));
  answer.set_currency(prices.currency);
  const pki::Identity caller = CallerOf(*context);
  const std::string owner = OwnerName(caller);
  if (request->validate_only()) {
    // The answer decides whether packages get uploaded.
    if (options_.space && BringsPackages(*request, spec)) {
      if (Status s = options_.space(); !s.ok()) return ToGrpc(s);
    }
    *response = std::move(answer);
    return ToGrpc(MakePlan(commands_, spec, owner, response));
  }
  if (!key.ok()) return ToGrpc(key.status());
  if (options_.space) {
    if (Status s = options_.space(); !s.ok()) return ToGrpc(s);
  }
  if (Status s = CheckPackages(spec, {owner, caller.IsAdmin()}); !s.ok()) {
    return ToGrpc(s);
  }
  return Reply(commands_->Submit(*key, submitted->job, owner,
                                 [&](const JobSnapshot& snapshot) {
                                   *answer.mutable_job() = ToMessage(snapshot);
                                   return answer.SerializeAsString();
                                 }),
               response);
}

grpc::Status JobService::DoUpdateJob(grpc::ServerContextBase* context,
                                     const v1::UpdateJobRequest* request,
                                     v1::Job* response) {
  if (Status s = CheckJobName(request->name()); !s.ok()) return ToGrpc(s);
  const auto key = KeyOf(*context, *request, "UpdateJob");
  if (!key.ok()) return ToGrpc(key.status());
  if (Status s = CheckLabels(request->labels()); !s.ok()) return ToGrpc(s);
  JobUpdate update;
  update.clear_labels = request->clear_labels();
  update.remove_labels = {request->remove_labels().begin(),
                          request->remove_labels().end()};
  update.set_labels = {request->labels().begin(), request->labels().end()};
  update.version = request->resource_version();
  if (request->has_priority()) {
    const int32_t priority = request->priority();
    if (priority < 0 || priority > kMaxPriority) {
      return ToGrpc(InvalidArgument("priority: {} is not in 0..{}", priority,
                                    kMaxPriority));
    }
    if (Status s = CheckPriority(CallerOf(*context), priority,
                                 options_.max_submitter_priority);
        !s.ok()) {
      return ToGrpc(s);
    }
    update.priority = priority;
  }
  return Reply(
      commands_->UpdateJob(*key, request->name(), update, OwnerCheck(*context),
                           [](const JobSnapshot& snapshot) {
                             return ToMessage(snapshot).SerializeAsString();
                           }),
      response);
}

grpc::Status JobService::DoGetJob(grpc::ServerContextBase* context,
                                  const v1::GetJobRequest* request,
                                  v1::Job* response) {
  if (Status s = CheckJobName(request->name()); !s.ok()) return ToGrpc(s);
  const auto job = queries_->GetJob(request->name());
  if (!job.ok()) return ToGrpc(job.status());
  *response = ToMessage(ShownTo(ReaderFor(*context), *job));
  response->set_queue_position(queries_->QueuePosition(request->name()));
  return grpc::Status::OK;
}

grpc::Status JobService::DoListJobs(grpc::ServerContextBase* context,
                                    const v1::ListJobsRequest* request,
                                    v1::ListJobsResponse* response) {
  std::set<JobState> states;
  for (const int state : request->states()) {
    const auto parsed = FromProto(static_cast<v1::JobState>(state), "states");
    if (!parsed.ok()) return ToGrpc(parsed.status());
    states.insert(*parsed);
  }
  const auto filter = JobFilter::Parse(request->filter());
  if (!filter.ok()) return ToGrpc(filter.status());
  const JobReader reader = ReaderFor(*context);
  std::vector<JobSnapshot> jobs = queries_->ListJobs();
  // Keeps the last job of the previous page as an anchor, although its state
  // may have changed.
  const std::string last = LastShown(request->page_token());
  if (!states.empty() || !filter->empty()) {
    std::erase_if(jobs, [&](const JobSnapshot& job) {
      const bool shown =
          (states.empty() || states.contains(job.job->state)) &&
          filter->Matches(*job.job, job.time, !reader.Sees(job.job->owner));
      return !shown && job.job->spec.name != last;
    });
  }
  std::vector<std::string> names;
  for (const JobSnapshot& job : jobs) names.push_back(job.job->spec.name);
  auto page = CutPage(names, request->page_size(), request->page_token());
  if (!page.ok()) return ToGrpc(page.status());
  FillPage(
      names,
      [&](size_t i) { return ToListedMessage(ShownTo(reader, jobs[i])); },
      &*page, response->mutable_jobs());
  response->set_next_page_token(page->next_token);
  return grpc::Status::OK;
}

grpc::ServerWriteReactor<v1::WatchJobsResponse>* JobService::WatchJobs(
    grpc::CallbackServerContext* context, const v1::WatchJobsRequest* request) {
  return StartCall<StreamReactor<v1::WatchJobsResponse>>(
      context, pools_,
      [&](StreamPeer* peer) {
        return std::make_unique<JobWatch>(queries_, hub_, streams_,
                                          ReaderFor(*context), *request, peer);
      },
      options_.readers);
}

grpc::Status JobService::DoCancelJob(grpc::ServerContextBase* context,
                                     const v1::CancelJobRequest* request,
                                     v1::Job* response) {
  if (Status s = CheckJobName(request->name()); !s.ok()) return ToGrpc(s);
  const auto key = KeyOf(*context, *request, "CancelJob");
  if (!key.ok()) return ToGrpc(key.status());
  return Reply(
      commands_->CancelJob(*key, request->name(), OwnerCheck(*context),
                           [](const JobSnapshot& snapshot) {
                             return ToMessage(snapshot).SerializeAsString();
                           }),
      response);
}

grpc::Status JobService::DoDeleteJob(grpc::ServerContextBase* context,
                                     const v1::DeleteJobRequest* request,
                                     v1::DeleteJobResponse* response) {
  if (Status s = CheckJobName(request->name()); !s.ok()) return ToGrpc(s);
  const auto key = KeyOf(*context, *request, "DeleteJob");
  if (!key.ok()) return ToGrpc(key.status());
  return Reply(
      commands_->DeleteJob(*key, request->name(), OwnerCheck(*context),
                           v1::DeleteJobResponse().SerializeAsString()),
      response);
}

grpc::ServerWriteReactor<v1::StreamLogsResponse>* JobService::StreamLogs(
    grpc::CallbackServerContext* context,
    const v1::StreamLogsRequest* request) {
  Status status = CheckJobName(request->name());
  if (status.ok()) status = CheckLogRequest(*request);
  if (!status.ok()) return new RefusedStream<v1::StreamLogsResponse>(status);
  return StartCall<StreamReactor<v1::StreamLogsResponse>>(
      context, pools_,
      [&](StreamPeer* peer) {
        return std::make_unique<LogStream>(queries_, hub_, logs_, streams_,
                                           ReaderFor(*context), *request, peer);
      },
      options_.readers);
}

grpc::Status JobService::DoRequestCheckpoint(
    grpc::ServerContextBase* context,
    const v1::RequestCheckpointRequest* request,
    v1::RequestCheckpointResponse* response) {
  if (Status s = CheckJobName(request->name()); !s.ok()) return ToGrpc(s);
  const auto key = KeyOf(*context, *request, "RequestCheckpoint");
  if (!key.ok()) return ToGrpc(key.status());
  return Reply(commands_->RequestCheckpoint(
                   *key, request->name(), OwnerCheck(*context),
                   [](const JobSnapshot& snapshot) {
                     v1::RequestCheckpointResponse answer;
                     *answer.mutable_directive() =
                         ToProto(snapshot.job->directives.back());
                     return answer.SerializeAsString();
                   }),
               response);
}

grpc::ServerUnaryReactor* JobService::RestoreJob(
    grpc::CallbackServerContext* context, const v1::RestoreJobRequest* request,
    v1::Job* response) {
  return Answer(context, DoRestore(commands_, *context, *request, response));
}

grpc::ServerUnaryReactor* JobService::ResizeJob(
    grpc::CallbackServerContext* context, const v1::ResizeJobRequest* request,
    v1::Job* response) {
  return Answer(context, DoResize(commands_, *context, *request, response));
}

}  // namespace lockstep::server
