#include "server/service/job_service.h"

#include <atomic>

#include "common/model/names.h"
#include "common/rpc/caller.h"
#include "common/rpc/status_conversion.h"
#include "common/wire/job_wire.h"
#include "server/core/bill.h"
#include "server/service/job_filter.h"
#include "server/service/log_stream.h"
#include "server/service/messages.h"
#include "server/service/page.h"
#include "server/service/request.h"
#include "server/service/submission.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""s;

constexpr Duration kBookmarkInterval = 10s;
constexpr int32_t kMaxPriority = 1000;
// How soon a stream notices that its client is gone.
constexpr Duration kCancelPoll = 1s;

Coordinator::MayChange OwnerCheck(const grpc::ServerContext& context) {
  const Identity caller = CallerOf(context);
  return [caller](const Job& job) {
    if (caller.IsAdmin() || OwnerName(caller) == job.owner) return OkStatus();
    return PermissionDenied(
        "job {} is of {}: only they and admins may change it", job.spec.name,
        job.owner);
  };
}

Status CheckName(const std::string& name) {
  if (IsJobName(name)) return OkStatus();
  return InvalidArgument(
      "name: must be a job's name ([A-Za-z][A-Za-z0-9_-]{{0,62}})");
}

}  // namespace

Status JobService::Plan(const JobSpec& spec, v1::SubmitJobResponse* response) {
  LOCKSTEP_ASSIGN_OR_RETURN(const JobPlan plan, coordinator_->Plan(spec));
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

Status JobService::CheckPriority(const Identity& caller,
                                 int32_t priority) const {
  if (caller.IsAdmin() || priority <= options_.max_submitter_priority) {
    return OkStatus();
  }
  return WithReason(
      PermissionDenied(
          "priority: {} is more than the {} that {} may ask for; ask an admin "
          "to raise it (lockstep jobs update JOB --priority {}), or the site "
          "to raise max_submitter_priority",
          priority, options_.max_submitter_priority, Describe(caller),
          priority),
      "PRIORITY_TOO_HIGH");
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

grpc::Status JobService::SubmitJob(grpc::ServerContext* context,
                                   const v1::SubmitJobRequest* request,
                                   v1::SubmitJobResponse* response) {
  const auto key = KeyOf(*context, *request, "SubmitJob");
  if (key.ok() && !request->validate_only()) {
    // The site's tables may have changed since, and packages have gone.
    const auto known = coordinator_->AnswerTo(*key);
    if (!known.ok()) return ToGrpc(known.status());
    if (*known) return Reply<v1::SubmitJobResponse>(**known, response);
  }
  StatusOr<Submitted> submitted = ReadSubmission(*request, *site_->Get());
  if (!submitted.ok()) return ToGrpc(submitted.status());
  if (Status s = CheckJobSize(submitted->job); !s.ok()) return ToGrpc(s);
  const JobSpec& spec = submitted->job.spec;
  if (Status s = CheckPriority(CallerOf(*context), spec.priority); !s.ok()) {
    return ToGrpc(s);
  }
  v1::SubmitJobResponse answer;
  for (const std::string& note : submitted->notes) answer.add_notes(note);
  if (const auto units = MlUnitsPerHour(spec)) {
    answer.set_ml_units_per_hour(*units);
  }
  const Prices prices = coordinator_->prices();
  answer.set_cost_per_hour(CostPerHour(spec, prices));
  answer.set_currency(prices.currency);
  if (request->validate_only()) {
    *response = std::move(answer);
    return ToGrpc(Plan(spec, response));
  }
  if (!key.ok()) return ToGrpc(key.status());
  const Identity caller = CallerOf(*context);
  const std::string owner = OwnerName(caller);
  if (Status s = CheckPackages(spec, {owner, caller.IsAdmin()}); !s.ok()) {
    return ToGrpc(s);
  }
  return Reply(coordinator_->Submit(*key, submitted->job, owner,
                                    [&](const JobSnapshot& snapshot) {
                                      *answer.mutable_job() =
                                          ToMessage(snapshot);
                                      return answer.SerializeAsString();
                                    }),
               response);
}

grpc::Status JobService::UpdateJob(grpc::ServerContext* context,
                                   const v1::UpdateJobRequest* request,
                                   v1::Job* response) {
  if (Status s = CheckName(request->name()); !s.ok()) return ToGrpc(s);
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
      return ToGrpc(InvalidArgument("priority: {} is not from 0 to {}",
                                    priority, kMaxPriority));
    }
    if (Status s = CheckPriority(CallerOf(*context), priority); !s.ok()) {
      return ToGrpc(s);
    }
    update.priority = priority;
  }
  return Reply(coordinator_->UpdateJob(
                   *key, request->name(), update, OwnerCheck(*context),
                   [](const JobSnapshot& snapshot) {
                     return ToMessage(snapshot).SerializeAsString();
                   }),
               response);
}

grpc::Status JobService::GetJob(grpc::ServerContext*,
                                const v1::GetJobRequest* request,
                                v1::Job* response) {
  if (Status s = CheckName(request->name()); !s.ok()) return ToGrpc(s);
  const auto job = coordinator_->GetJob(request->name());
  if (!job.ok()) return ToGrpc(job.status());
  *response = ToMessage(*job);
  response->set_queue_position(coordinator_->QueuePosition(request->name()));
  return grpc::Status::OK;
}

grpc::Status JobService::ListJobs(grpc::ServerContext*,
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
  std::vector<JobSnapshot> jobs = coordinator_->ListJobs();
  // The last job of the page before stays, to be found: it may be in another
  // state by now.
  const std::string last = LastShown(request->page_token());
  if (!states.empty() || !filter->empty()) {
    std::erase_if(jobs, [&](const JobSnapshot& job) {
      const bool shown = (states.empty() || states.contains(job.job->state)) &&
                         filter->Matches(*job.job, job.time);
      return !shown && job.job->spec.name != last;
    });
  }
  std::vector<std::string> names;
  for (const JobSnapshot& job : jobs) names.push_back(job.job->spec.name);
  auto page = CutPage(names, request->page_size(), request->page_token());
  if (!page.ok()) return ToGrpc(page.status());
  FillPage(
      names, [&](size_t i) { return ToListedMessage(jobs[i]); }, &*page,
      response->mutable_jobs());
  response->set_next_page_token(page->next_token);
  return grpc::Status::OK;
}

grpc::Status JobService::WatchJobs(
    grpc::ServerContext* context, const v1::WatchJobsRequest* request,
    grpc::ServerWriter<v1::WatchJobsResponse>* writer) {
  const std::string& name = request->name();
  int64_t version = request->resource_version();
  bool ended = false;
  const auto send_job = [&](v1::Job job) {
    ended = !name.empty() && (job.state() == v1::JOB_STATE_SUCCEEDED ||
                              job.state() == v1::JOB_STATE_FAILED ||
                              job.state() == v1::JOB_STATE_CANCELLED);
    v1::WatchJobsResponse response;
    *response.mutable_job() = std::move(job);
    return writer->Write(response);
  };
  if (!name.empty()) {
    if (Status s = CheckName(name); !s.ok()) return ToGrpc(s);
    if (const auto job = coordinator_->GetJob(name); !job.ok()) {
      return ToGrpc(job.status());
    }
  }
  if (version < 0) {
    return ToGrpc(InvalidArgument(
        "resource_version: must be 0 (from now on) or more, not {}", version));
  }
  if (version > coordinator_->version()) {
    return ToGrpc(WithReason(
        OutOfRange("resource_version: {} is later than anything that happened "
                   "here (now at {}); start again without one",
                   version, coordinator_->version()),
        "VERSION_UNKNOWN"));
  }
  if (version == 0) {
    // Read before the jobs are: what changes meanwhile is sent twice, never
    // missed.
    version = coordinator_->version();
    std::vector<JobSnapshot> jobs;
    if (name.empty()) {
      jobs = coordinator_->ListJobs();
    } else if (auto job = coordinator_->GetJob(name); job.ok()) {
      jobs.push_back(*std::move(job));
    }
    for (const JobSnapshot& job : jobs) {
      if (!send_job(ToMessage(job))) return grpc::Status::CANCELLED;
    }
    v1::WatchJobsResponse synced;
    synced.set_synced(version);
    if (!writer->Write(synced)) return grpc::Status::CANCELLED;
  }
  std::atomic<int64_t> sent = version;
  const StreamMetrics::Open open(streams_, StreamKind::kJobs,
                                 [&] { return hub_->CountSince(name, sent); });
  uint64_t progress_sequence = 0;
  auto next_bookmark = std::chrono::steady_clock::now() + kBookmarkInterval;
  // Who comes back may have seen the end already.
  ended = ended || (request->resource_version() != 0 && IsOver(name, version));
  while (!ended && !context->IsCancelled()) {
    const auto now = std::chrono::steady_clock::now();
    const auto news =
        hub_->Wait(name, version, progress_sequence,
                   std::chrono::time_point_cast<Duration>(now) + kCancelPoll);
    if (!news.ok()) return ToGrpc(news.status());
    for (const WatchHub::Change& change : news->changes) {
      if (change.job == nullptr) {
        v1::WatchJobsResponse response;
        response.set_deleted(change.name);
        if (!writer->Write(response)) return grpc::Status::CANCELLED;
        ended = ended || !name.empty();
        continue;
      }
      // The newest known, not the one of the change: a reader that is behind
      // need not see what is over; but no state of the job is left out.
      JobSnapshot snapshot;
      snapshot.job = change.job;
      if (auto current = coordinator_->GetJob(change.job->spec.name);
          current.ok() &&
          current->job->resource_version == change.job->resource_version) {
        snapshot = *std::move(current);
      }
      if (!send_job(ToMessage(snapshot))) return grpc::Status::CANCELLED;
      if (ended) break;
    }
    for (const auto& [job, progress] : news->progress) {
      if (ended) break;
      v1::WatchJobsResponse response;
      *response.mutable_progress() = ToMessage(job, progress);
      if (!writer->Write(response)) return grpc::Status::CANCELLED;
    }
    sent = version = news->version;
    progress_sequence = news->progress_sequence;
    if (!ended && news->changes.empty() && IsOver(name, version)) break;
    if (now >= next_bookmark) {
      next_bookmark = now + kBookmarkInterval;
      v1::WatchJobsResponse response;
      response.set_bookmark(version);
      if (!writer->Write(response)) return grpc::Status::CANCELLED;
    }
  }
  return grpc::Status::OK;
}

bool JobService::IsOver(const std::string& name, int64_t version) {
  if (name.empty()) return false;
  const auto job = coordinator_->GetJob(name);
  return job.ok() && IsFinal(job->job->state) &&
         job->job->resource_version <= version;
}

grpc::Status JobService::CancelJob(grpc::ServerContext* context,
                                   const v1::CancelJobRequest* request,
                                   v1::Job* response) {
  if (Status s = CheckName(request->name()); !s.ok()) return ToGrpc(s);
  const auto key = KeyOf(*context, *request, "CancelJob");
  if (!key.ok()) return ToGrpc(key.status());
  return Reply(
      coordinator_->CancelJob(*key, request->name(), OwnerCheck(*context),
                              [](const JobSnapshot& snapshot) {
                                return ToMessage(snapshot).SerializeAsString();
                              }),
      response);
}

grpc::Status JobService::DeleteJob(grpc::ServerContext* context,
                                   const v1::DeleteJobRequest* request,
                                   v1::DeleteJobResponse* response) {
  if (Status s = CheckName(request->name()); !s.ok()) return ToGrpc(s);
  const auto key = KeyOf(*context, *request, "DeleteJob");
  if (!key.ok()) return ToGrpc(key.status());
  return Reply(
      coordinator_->DeleteJob(*key, request->name(), OwnerCheck(*context),
                              v1::DeleteJobResponse().SerializeAsString()),
      response);
}

grpc::Status JobService::StreamLogs(
    grpc::ServerContext* context, const v1::StreamLogsRequest* request,
    grpc::ServerWriter<v1::StreamLogsResponse>* writer) {
  if (Status s = CheckName(request->name()); !s.ok()) return ToGrpc(s);
  if (Status s = CheckLogRequest(*request); !s.ok()) return ToGrpc(s);
  LogStream stream(coordinator_, logs_, *request);
  const StreamMetrics::Open open(streams_, StreamKind::kLogs,
                                 [&] { return stream.lines_waiting(); });
  return ToGrpc(stream.Run(
      [&](const v1::StreamLogsResponse& lines) { return writer->Write(lines); },
      [&] { return context->IsCancelled(); }));
}

grpc::Status JobService::RequestCheckpoint(
    grpc::ServerContext* context, const v1::RequestCheckpointRequest* request,
    v1::RequestCheckpointResponse* response) {
  if (Status s = CheckName(request->name()); !s.ok()) return ToGrpc(s);
  const auto key = KeyOf(*context, *request, "RequestCheckpoint");
  if (!key.ok()) return ToGrpc(key.status());
  return Reply(coordinator_->RequestCheckpoint(
                   *key, request->name(), OwnerCheck(*context),
                   [](const JobSnapshot& snapshot) {
                     v1::RequestCheckpointResponse answer;
                     *answer.mutable_directive() =
                         ToProto(snapshot.job->directives.back());
                     return answer.SerializeAsString();
                   }),
               response);
}

grpc::Status JobService::RestoreJob(grpc::ServerContext* context,
                                    const v1::RestoreJobRequest* request,
                                    v1::Job* response) {
  if (Status s = CheckName(request->name()); !s.ok()) return ToGrpc(s);
  const auto key = KeyOf(*context, *request, "RestoreJob");
  if (!key.ok()) return ToGrpc(key.status());
  const auto target = FromProto(request->target(), "target");
  if (!target.ok()) return ToGrpc(target.status());
  return Reply(coordinator_->RestoreJob(
                   *key, request->name(), *target, OwnerCheck(*context),
                   [](const JobSnapshot& snapshot) {
                     return ToMessage(snapshot).SerializeAsString();
                   }),
               response);
}

}  // namespace lockstep
