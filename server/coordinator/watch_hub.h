// Recent changes of jobs, for watchers. Both the number and the bytes of the
// changes are bounded, because a large job may change often. The hub never
// waits for a watcher.
//
// Thread-safe. Watchers pull: each keeps the version that it has seen. A slow
// watcher costs nothing and gets OUT_OF_RANGE if it missed a change. A Watch
// waits without a thread.
#ifndef LOCKSTEP_SERVER_COORDINATOR_WATCH_HUB_H_
#define LOCKSTEP_SERVER_COORDINATOR_WATCH_HUB_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "server/core/job.h"
#include "server/core/progress.h"

namespace lockstep::server {

class WatchHub {
 public:
  struct Change {
    int64_t version = 0;
    // Null if the job was deleted.
    std::shared_ptr<const Job> job;
    JobName name;
    // Approximate memory, without data shared with other versions.
    size_t bytes = 0;
  };
  struct News {
    std::vector<Change> changes;
    // All changes up to this version are covered.
    int64_t version = 0;
    // The newest progress of the watched job, if newer than the watcher's.
    std::map<JobName, JobProgressInfo> progress;
    uint64_t progress_sequence = 0;
  };

  // A watcher of one job, or of all. After it has taken everything, changes of
  // other jobs neither wake it nor make it fall behind. Thread-compatible,
  // except Behind.
  class Watch {
   public:
    // Watches `job` (empty for any) after `version`. After Take found nothing,
    // `on_news` is called once, at the next change. The hub's lock is held
    // then, so it must not call the hub. `hub` outlives this object.
    Watch(WatchHub* hub, JobName job, int64_t version,
          std::function<void()> on_news);
    // `on_news` is no longer called.
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // Returns the changes since the last call, which may be none. OutOfRange if
    // one of them is no longer kept. Unavailable after Close. Changes come
    // version by version up to `most` bytes; the rest stays for the next call.
    StatusOr<News> Take(size_t most = SIZE_MAX);
    // All changes up to this version were returned.
    int64_t version() const;
    // The number of changes not taken yet. Thread-safe.
    int64_t Behind() const;

   private:
    friend class WatchHub;
    WatchHub* const hub_;
    const JobName job_;
    const std::function<void()> on_news_;
    int64_t version_ ABSL_GUARDED_BY(hub_->mu_);
    uint64_t progress_sequence_ ABSL_GUARDED_BY(hub_->mu_) = 0;
    // It has taken everything, and the next change wakes it.
    bool waits_ ABSL_GUARDED_BY(hub_->mu_) = false;
    std::multimap<JobName, Watch*>::iterator at_ ABSL_GUARDED_BY(hub_->mu_);
  };

  // Keeps the newest `kept` changes within `kept_bytes`
  // (server/core/job_size.h), and always the last one. Data that versions share
  // counts once.
  explicit WatchHub(size_t kept = 8192, size_t kept_bytes = 64 << 20)
      : kept_(kept), kept_bytes_(kept_bytes) {}

  // `version` is the store's version at the start.
  void Start(int64_t version);
  void Publish(int64_t version,
               const std::vector<std::shared_ptr<const Job>>& jobs);
  void PublishDeleted(int64_t version, const std::vector<JobName>& jobs);
  void PublishProgress(const std::map<JobName, JobProgressInfo>& progress);
  void ForgetProgress(const JobName& job);
  // Tells every watcher at shutdown.
  void Close();

 private:
  struct Progress {
    uint64_t sequence = 0;
    JobProgressInfo info;
  };
  // Data that changes share.
  struct Share {
    // The number of changes that share it.
    size_t changes = 0;
    size_t bytes = 0;
  };
  void CountShares(const Change& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropShares(const Change& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Add(int64_t version, std::vector<Change> changes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status CheckKept(int64_t version) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Wakes the waiting watchers of `job` and of all jobs, which had taken
  // everything up to `version` and `progress_sequence`.
  void WakeWatchers(const JobName& job, int64_t version,
                    uint64_t progress_sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t Count(const JobName& job, int64_t version) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  News Collect(const JobName& job, int64_t version, uint64_t progress_sequence,
               size_t most = SIZE_MAX) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t kept_;
  const size_t kept_bytes_;
  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  // Changes after this version are kept.
  int64_t oldest_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t newest_ ABSL_GUARDED_BY(mu_) = 0;
  // By version.
  std::deque<Change> changes_ ABSL_GUARDED_BY(mu_);
  // The bytes of the changes, with shared data counted once.
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::unordered_map<const void*, Share> shares_ ABSL_GUARDED_BY(mu_);
  uint64_t progress_sequence_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<JobName, Progress> progress_ ABSL_GUARDED_BY(mu_);
  // By job; an empty name means any.
  std::multimap<JobName, Watch*> watches_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_WATCH_HUB_H_
