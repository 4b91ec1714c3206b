#include "server/coordinator/watch_hub.h"

#include <algorithm>

namespace lockstep {

void WatchHub::Start(int64_t version) {
  MutexLock lock(&mu_);
  oldest_ = version;
  newest_ = version;
}

void WatchHub::Publish(int64_t version,
                       const std::vector<std::shared_ptr<const Job>>& jobs) {
  std::vector<Change> changes;
  for (const auto& job : jobs)
    changes.push_back({version, job, job->spec.name});
  MutexLock lock(&mu_);
  Add(version, std::move(changes));
}

void WatchHub::PublishDeleted(int64_t version,
                              const std::vector<JobName>& jobs) {
  std::vector<Change> changes;
  for (const JobName& job : jobs) changes.push_back({version, nullptr, job});
  MutexLock lock(&mu_);
  Add(version, std::move(changes));
}

void WatchHub::Add(int64_t version, std::vector<Change> changes) {
  for (Change& change : changes) changes_.push_back(std::move(change));
  newest_ = version;
  while (changes_.size() > kept_) {
    oldest_ = changes_.front().version;
    changes_.pop_front();
  }
  news_.NotifyAll();
}

void WatchHub::PublishProgress(const JobName& job,
                               const JobProgressInfo& progress) {
  MutexLock lock(&mu_);
  progress_[job] = {++progress_sequence_, progress};
  news_.NotifyAll();
}

void WatchHub::ForgetProgress(const JobName& job) {
  MutexLock lock(&mu_);
  progress_.erase(job);
}

void WatchHub::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
  news_.NotifyAll();
}

WatchHub::News WatchHub::Collect(const JobName& job, int64_t version,
                                 uint64_t progress_sequence) const {
  News news;
  // A commit of nodes alone is not published, so a watcher may be ahead.
  news.version = std::max(version, newest_);
  news.progress_sequence = progress_sequence_;
  for (const Change& change : changes_) {
    if (change.version > version && (job.empty() || change.name == job)) {
      news.changes.push_back(change);
    }
  }
  for (const auto& [name, progress] : progress_) {
    if (progress.sequence > progress_sequence && (job.empty() || job == name)) {
      news.progress[name] = progress.info;
    }
  }
  return news;
}

StatusOr<WatchHub::News> WatchHub::Wait(const JobName& job, int64_t version,
                                        uint64_t progress_sequence,
                                        MonoTime deadline) {
  MutexLock lock(&mu_);
  for (;;) {
    if (closed_) return Unavailable("the coordinator is stopping");
    if (version < oldest_) {
      return WithReason(
          OutOfRange("changes after version {} are no longer kept (from {} on "
                     "they are); start again without a version",
                     version, oldest_),
          "VERSION_TOO_OLD");
    }
    News news = Collect(job, version, progress_sequence);
    if (!news.changes.empty() || !news.progress.empty()) return news;
    // What others published is not this watcher's: do not look at it again.
    version = news.version;
    progress_sequence = news.progress_sequence;
    if (!news_.WaitUntil(&mu_, deadline)) return news;
  }
}

}  // namespace lockstep
