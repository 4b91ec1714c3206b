#include "server/service/job_watch.h"

#include <utility>
#include <vector>

#include "server/service/messages.h"
#include "server/service/request.h"

namespace lockstep::server {
namespace {

// About like Kubernetes. Thousands of idle watches are cheap only with few
// messages.
constexpr Duration kBookmarkInterval = std::chrono::seconds(60);

// Maximum bytes of changes taken from the hub at a time. The hub keeps the rest
// for a slow reader, and drops it if it grows too large.
constexpr size_t kNewsBytes = 1 << 20;

}  // namespace

JobWatch::JobWatch(const ClusterQueries* queries, WatchHub* hub,
                   StreamMetrics* streams, JobReader reader,
                   v1::WatchJobsRequest request, StreamPeer* peer)
    : queries_(queries),
      hub_(hub),
      streams_(streams),
      peer_(peer),
      reader_(std::move(reader)),
      name_(request.name()),
      first_version_(request.resource_version()) {}

Status JobWatch::CheckRequest() {
  if (!name_.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(CheckJobName(name_));
    LOCKSTEP_RETURN_IF_ERROR(queries_->GetJob(name_).status());
  }
  if (first_version_ < 0) {
    return InvalidArgument(
        "resource_version: must be 0 (from now on) or more, not {}",
        first_version_);
  }
  const int64_t known = queries_->version();
  if (first_version_ <= known) return OkStatus();
  return WithReason(
      OutOfRange("resource_version: {} is later than the newest version "
                 "({}); start again without one",
                 first_version_, known),
      "VERSION_UNKNOWN");
}

Status JobWatch::Start() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRequest());
  int64_t version = first_version_;
  if (version == 0) {
    // Read before the jobs, so changes meanwhile are sent twice rather than
    // missed.
    version = queries_->version();
    NoteJobs(version);
  } else {
    // A reader that reconnects may have seen the end already.
    ended_ = IsOver(version);
  }
  watch_.emplace(hub_, name_, version, [peer = peer_] { peer->Wake(); });
  open_.emplace(streams_, StreamKind::kJobs,
                [this] { return waiting_ + watch_->Behind(); });
  next_bookmark_ = MonotonicNow() + kBookmarkInterval;
  return OkStatus();
}

void JobWatch::NoteJobs(int64_t version) {
  std::vector<JobName> names;
  if (!name_.empty()) {
    names.push_back(name_);
  } else {
    for (const JobSnapshot& job : queries_->ListJobs()) {
      names.push_back(job.job->spec.name);
    }
  }
  initial_.Begin(std::move(names), version);
  waiting_ = initial_.waiting();
}

void JobWatch::PushNews(WatchHub::News news) {
  for (WatchHub::Change& change : news.changes) {
    Item item;
    item.job = std::move(change.job);
    item.version = change.version;
    item.name = std::move(change.name);
    item.bytes = static_cast<int64_t>(change.bytes);
    Push(std::move(item));
  }
  for (auto& [job, progress] : news.progress) {
    Item item;
    item.name = job;
    item.progress = std::move(progress);
    Push(std::move(item));
  }
}

void JobWatch::Push(Item item) {
  item.bytes += static_cast<int64_t>(sizeof(Item) + item.name.size());
  kept_ += item.bytes;
  items_.push_back(std::move(item));
  ++waiting_;
}

bool JobWatch::Fill(v1::WatchJobsResponse* message) {
  if (initial_.pending()) {
    FillInitial(message);
    return true;
  }
  while (!items_.empty()) {
    // After the watched job's end nothing is sent.
    const bool wanted = !ended_ && FillItem(items_.front(), message);
    kept_ -= items_.front().bytes;
    items_.pop_front();
    if (!wanted) continue;
    waiting_ = static_cast<int64_t>(items_.size()) + 1;
    return true;
  }
  waiting_ = 0;
  return false;
}

void JobWatch::FillInitial(v1::WatchJobsResponse* message) {
  waiting_ = initial_.waiting();
  while (const std::optional<JobName> name = initial_.Next()) {
    const auto job = queries_->GetJob(*name);
    // Its deletion follows as a change.
    if (!job.ok()) continue;
    initial_.OnSent(*name, job->job->resource_version);
    ended_ = !name_.empty() && IsFinal(job->job->state);
    *message->mutable_job() = ToMessage(ShownTo(reader_, *job));
    return;
  }
  message->set_synced(initial_.End());
}

bool JobWatch::FillItem(const Item& item, v1::WatchJobsResponse* message) {
  if (item.progress) {
    *message->mutable_progress() = ToMessage(
        item.name,
        ShownTo(reader_, reader_.sees_all ? "" : queries_->OwnerOf(item.name),
                *item.progress));
    return true;
  }
  if (initial_.Covers(item.name, item.version)) return false;
  if (item.job == nullptr) {
    message->set_deleted(item.name);
    ended_ = !name_.empty();
    return true;
  }
  JobSnapshot job;
  job.job = item.job;
  Complete(&job);
  ended_ = !name_.empty() && IsFinal(job.job->state);
  *message->mutable_job() = ToMessage(ShownTo(reader_, job));
  return true;
}

void JobWatch::Complete(JobSnapshot* job) {
  auto current = queries_->GetJob(job->job->spec.name);
  if (current.ok() &&
      current->job->resource_version == job->job->resource_version) {
    *job = *std::move(current);
  }
}

bool JobWatch::IsOver(int64_t version) {
  if (name_.empty()) return false;
  const auto job = queries_->GetJob(name_);
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
    auto news = watch_->Take(kNewsBytes);
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

}  // namespace lockstep::server
