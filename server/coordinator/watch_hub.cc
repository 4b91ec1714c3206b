#include "server/coordinator/watch_hub.h"

#include <algorithm>

#include "server/core/job_size.h"

namespace lockstep::server {

void WatchHub::Start(int64_t version) {
  MutexLock lock(&mu_);
  oldest_ = version;
  newest_ = version;
}

void WatchHub::Publish(int64_t version,
                       const std::vector<std::shared_ptr<const Job>>& jobs) {
  std::vector<Change> changes;
  for (const auto& job : jobs) {
    changes.push_back({version, job, job->spec.name, JobBytes(*job)});
  }
  MutexLock lock(&mu_);
  Add(version, std::move(changes));
}

void WatchHub::PublishDeleted(int64_t version,
                              const std::vector<JobName>& jobs) {
  std::vector<Change> changes;
  for (const JobName& job : jobs) changes.push_back({version, nullptr, job, 0});
  MutexLock lock(&mu_);
  Add(version, std::move(changes));
}

void WatchHub::WakeWatchers(const JobName& job, int64_t version,
                            uint64_t progress_sequence) {
  const auto tell = [&](const JobName& watched) {
    mu_.AssertHeld();
    const auto [first, last] = watches_.equal_range(watched);
    for (auto it = first; it != last; ++it) {
      Watch* const watch = it->second;
      watch->hub_->mu_.AssertHeld();
      if (!watch->waits_) continue;
      watch->waits_ = false;
      watch->version_ = std::max(watch->version_, version);
      watch->progress_sequence_ = progress_sequence;
      watch->on_news_();
    }
  };
  tell(job);
  if (!job.empty()) tell("");
}

void WatchHub::CountShares(const Change& change) {
  if (change.job == nullptr) return;
  for (const SharedPart& part : SharedParts(*change.job)) {
    Share& share = shares_[part.identity];
    if (share.changes++ > 0) continue;
    share.bytes = part.bytes;
    bytes_ += part.bytes;
  }
}

void WatchHub::DropShares(const Change& change) {
  if (change.job == nullptr) return;
  for (const SharedPart& part : SharedParts(*change.job)) {
    const auto share = shares_.find(part.identity);
    if (--share->second.changes > 0) continue;
    bytes_ -= share->second.bytes;
    shares_.erase(share);
  }
}

void WatchHub::Add(int64_t version, std::vector<Change> changes) {
  const int64_t before = newest_;
  for (const Change& change : changes) {
    WakeWatchers(change.name, before, progress_sequence_);
  }
  for (Change& change : changes) {
    CountShares(change);
    bytes_ += change.bytes;
    changes_.push_back(std::move(change));
  }
  newest_ = version;
  while (changes_.size() > kept_ ||
         (bytes_ > kept_bytes_ && changes_.size() > 1)) {
    oldest_ = changes_.front().version;
    bytes_ -= changes_.front().bytes;
    DropShares(changes_.front());
    changes_.pop_front();
  }
}

void WatchHub::PublishProgress(
    const std::map<JobName, JobProgressInfo>& progress) {
  if (progress.empty()) return;
  MutexLock lock(&mu_);
  const uint64_t before = progress_sequence_;
  for (const auto& [job, info] : progress) {
    WakeWatchers(job, newest_, before);
    progress_[job] = {++progress_sequence_, info};
  }
}

void WatchHub::ForgetProgress(const JobName& job) {
  MutexLock lock(&mu_);
  progress_.erase(job);
}

void WatchHub::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
  for (const auto& [job, watch] : watches_) watch->on_news_();
}

WatchHub::News WatchHub::Collect(const JobName& job, int64_t version,
                                 uint64_t progress_sequence,
                                 size_t most) const {
  News news;
  // A commit of nodes alone is not published, so a watcher may be ahead.
  news.version = std::max(version, newest_);
  news.progress_sequence = progress_sequence_;
  // Every watcher does this at every change, and the coordinator waits for the
  // lock: only what is new is looked at.
  auto change = std::partition_point(
      changes_.begin(), changes_.end(),
      [&](const Change& known) { return known.version <= version; });
  size_t bytes = 0;
  for (; change != changes_.end(); ++change) {
    if (!job.empty() && change->name != job) continue;
    if (bytes >= most && change->version > news.changes.back().version) {
      // Progress is newer than what is left for the next time.
      news.version = news.changes.back().version;
      news.progress_sequence = progress_sequence;
      return news;
    }
    bytes += change->bytes;
    news.changes.push_back(*change);
  }
  const auto first = job.empty() ? progress_.begin() : progress_.find(job);
  const auto last = job.empty() || first == progress_.end() ? progress_.end()
                                                            : std::next(first);
  for (auto it = first; it != last; ++it) {
    if (it->second.sequence > progress_sequence) {
      news.progress[it->first] = it->second.info;
    }
  }
  return news;
}

int64_t WatchHub::Count(const JobName& job, int64_t version) const {
  const auto first = std::partition_point(
      changes_.begin(), changes_.end(),
      [&](const Change& known) { return known.version <= version; });
  return std::count_if(first, changes_.end(), [&](const Change& change) {
    return job.empty() || change.name == job;
  });
}

Status WatchHub::CheckKept(int64_t version) const {
  if (closed_) return Unavailable("the coordinator is stopping");
  if (version >= oldest_) return OkStatus();
  return WithReason(
      OutOfRange("changes after version {} are no longer kept (from {} on "
                 "they are); start again without a version",
                 version, oldest_),
      "VERSION_TOO_OLD");
}

WatchHub::Watch::Watch(WatchHub* hub, JobName job, int64_t version,
                       std::function<void()> on_news)
    : hub_(hub),
      job_(std::move(job)),
      on_news_(std::move(on_news)),
      version_(version) {
  MutexLock lock(&hub_->mu_);
  at_ = hub_->watches_.emplace(job_, this);
}

WatchHub::Watch::~Watch() {
  MutexLock lock(&hub_->mu_);
  hub_->watches_.erase(at_);
}

StatusOr<WatchHub::News> WatchHub::Watch::Take(size_t most) {
  MutexLock lock(&hub_->mu_);
  if (waits_ && !hub_->closed_) {
    // Nothing of its own has come since: what others published may be gone.
    version_ = std::max(version_, hub_->newest_);
    progress_sequence_ = hub_->progress_sequence_;
  }
  LOCKSTEP_RETURN_IF_ERROR(hub_->CheckKept(version_));
  News news = hub_->Collect(job_, version_, progress_sequence_, most);
  version_ = news.version;
  progress_sequence_ = news.progress_sequence;
  waits_ = news.changes.empty() && news.progress.empty();
  return news;
}

int64_t WatchHub::Watch::version() const {
  MutexLock lock(&hub_->mu_);
  return waits_ ? std::max(version_, hub_->newest_) : version_;
}

int64_t WatchHub::Watch::Behind() const {
  MutexLock lock(&hub_->mu_);
  return waits_ ? 0 : hub_->Count(job_, version_);
}

}  // namespace lockstep::server
