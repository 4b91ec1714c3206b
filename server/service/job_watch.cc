#include "server/service/job_watch.h"

#include <utility>
#include <vector>

#include "server/service/messages.h"
#include "server/service/request.h"

namespace lockstep {
namespace {

// As Kubernetes does, about. Thousands of idle watches cost little only if they
// are sent little.
constexpr Duration kBookmarkInterval = std::chrono::seconds(60);

}  // namespace

JobWatch::JobWatch(Coordinator* coordinator, WatchHub* hub,
                   StreamMetrics* streams, JobReader reader,
                   v1::WatchJobsRequest request, StreamPeer* peer)
    : coordinator_(coordinator),
      hub_(hub),
      streams_(streams),
      peer_(peer),
      reader_(std::move(reader)),
      name_(request.name()),
      first_version_(request.resource_version()) {}

Status JobWatch::CheckRequest() {
  if (!name_.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(CheckJobName(name_));
    LOCKSTEP_RETURN_IF_ERROR(coordinator_->GetJob(name_).status());
  }
  if (first_version_ < 0) {
    return InvalidArgument(
        "resource_version: must be 0 (from now on) or more, not {}",
        first_version_);
  }
  const int64_t known = coordinator_->version();
  if (first_version_ <= known) return OkStatus();
  return WithReason(
      OutOfRange("resource_version: {} is later than anything that happened "
                 "here (now at {}); start again without one",
                 first_version_, known),
      "VERSION_UNKNOWN");
}

Status JobWatch::Start() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRequest());
  int64_t version = first_version_;
  if (version == 0) {
    // Read before the jobs are: what changes meanwhile is sent twice, never
    // missed.
    version = coordinator_->version();
    PushJobs(version);
  } else {
    // Who comes back may have seen the end already.
    ended_ = IsOver(version);
  }
  watch_.emplace(hub_, name_, version, [peer = peer_] { peer->Wake(); });
  open_.emplace(streams_, StreamKind::kJobs,
                [this] { return waiting_ + watch_->Behind(); });
  next_bookmark_ = MonotonicNow() + kBookmarkInterval;
  return OkStatus();
}

void JobWatch::PushJobs(int64_t version) {
  std::vector<JobSnapshot> jobs;
  if (name_.empty()) {
    jobs = coordinator_->ListJobs();
  } else if (auto job = coordinator_->GetJob(name_); job.ok()) {
    jobs.push_back(*std::move(job));
  }
  for (JobSnapshot& job : jobs) {
    Item item;
    item.job = std::move(job);
    item.complete = true;
    Push(std::move(item));
  }
  Item synced;
  synced.synced = version;
  Push(std::move(synced));
  first_jobs_ = true;
}

void JobWatch::PushNews(WatchHub::News news) {
  for (WatchHub::Change& change : news.changes) {
    Item item;
    if (change.job == nullptr) {
      item.deleted = std::move(change.name);
    } else {
      item.job.emplace().job = std::move(change.job);
    }
    Push(std::move(item));
  }
  for (auto& [job, progress] : news.progress) {
    Item item;
    item.progress_of = job;
    item.progress = std::move(progress);
    Push(std::move(item));
  }
}

void JobWatch::Push(Item item) {
  items_.push_back(std::move(item));
  ++waiting_;
}

bool JobWatch::Fill(v1::WatchJobsResponse* message) {
  // What comes after the end of the one job is nobody's.
  if (ended_ && !first_jobs_) items_.clear();
  waiting_ = static_cast<int64_t>(items_.size());
  if (items_.empty()) return false;
  Item item = std::move(items_.front());
  items_.pop_front();
  if (item.synced) {
    message->set_synced(*item.synced);
    first_jobs_ = false;
  } else if (item.progress) {
    *message->mutable_progress() = ToMessage(
        item.progress_of,
        ShownTo(reader_,
                reader_.sees_all ? "" : coordinator_->OwnerOf(item.progress_of),
                *item.progress));
  } else if (!item.job) {
    message->set_deleted(item.deleted);
    ended_ = !name_.empty();
  } else {
    if (!item.complete) Complete(&*item.job);
    ended_ = !name_.empty() && IsFinal(item.job->job->state);
    *message->mutable_job() = ToMessage(ShownTo(reader_, *item.job));
  }
  return true;
}

void JobWatch::Complete(JobSnapshot* job) {
  auto current = coordinator_->GetJob(job->job->spec.name);
  if (current.ok() &&
      current->job->resource_version == job->job->resource_version) {
    *job = *std::move(current);
  }
}

bool JobWatch::IsOver(int64_t version) {
  if (name_.empty()) return false;
  const auto job = coordinator_->GetJob(name_);
  return job.ok() && IsFinal(job->job->state) &&
         job->job->resource_version <= version;
}

StreamStep JobWatch::Next(v1::WatchJobsResponse* message) {
  if (!watch_) {
    if (Status s = Start(); !s.ok()) return StreamStep::End(std::move(s));
  }
  for (;;) {
    if (Fill(message)) return StreamStep::Send();
    if (ended_) return StreamStep::End(OkStatus());
    auto news = watch_->Take();
    if (!news.ok()) return StreamStep::End(news.status());
    if (!news->changes.empty() || !news->progress.empty()) {
      PushNews(*std::move(news));
      continue;
    }
    if (IsOver(news->version)) return StreamStep::End(OkStatus());
    if (MonotonicNow() < next_bookmark_)
      return StreamStep::Sleep(next_bookmark_);
    next_bookmark_ = MonotonicNow() + kBookmarkInterval;
    message->set_bookmark(watch_->version());
    return StreamStep::Send();
  }
}

}  // namespace lockstep
