// Changes of jobs for those who watch. Bounded in number and in bytes: each
// change is a version of a job, and the same large one may change all day.
// Nobody is waited for.
//
// Thread-safe. Watchers pull: each keeps the version it has seen, so that a
// slow one costs nothing and learns by OUT_OF_RANGE that it missed something.
// A Watch waits without a thread.
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

namespace lockstep {

class WatchHub {
 public:
  struct Change {
    int64_t version = 0;
    // Null: it was deleted.
    std::shared_ptr<const Job> job;
    JobName name;
    // About what it takes, without what it shares with other versions.
    size_t bytes = 0;
  };
  struct News {
    std::vector<Change> changes;
    // Everything up to here was looked at.
    int64_t version = 0;
    // Newest progress of the watched job, when it is newer than the watcher's.
    std::map<JobName, JobProgressInfo> progress;
    uint64_t progress_sequence = 0;
  };

  // One who watches. What it has taken is behind it; once it has taken all
  // there is, what others publish neither wakes it nor makes it fall behind.
  // Its calls are one at a time, but for Behind.
  class Watch {
   public:
    // Of `job` (empty: any), after `version`. `on_news` is called once each
    // time that Take has found nothing and there is something since: with the
    // hub's lock held, so it must only hand on. `hub` outlives this.
    Watch(WatchHub* hub, JobName job, int64_t version,
          std::function<void()> on_news);
    // `on_news` is not called any more.
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // What is new since the last call; News may be empty. Errors as Wait. Of
    // changes, those of one version after another until they are of `most`
    // bytes; the others stay for the next call.
    StatusOr<News> Take(size_t most = SIZE_MAX);
    // Everything up to here was looked at.
    int64_t version() const;
    // Changes that wait to be taken. From any thread.
    int64_t Behind() const;

   private:
    friend class WatchHub;
    WatchHub* const hub_;
    const JobName job_;
    const std::function<void()> on_news_;
    int64_t version_ ABSL_GUARDED_BY(hub_->mu_);
    uint64_t progress_sequence_ ABSL_GUARDED_BY(hub_->mu_) = 0;
    // It has taken everything, and is to be told of the next.
    bool waits_ ABSL_GUARDED_BY(hub_->mu_) = false;
    std::multimap<JobName, Watch*>::iterator at_ ABSL_GUARDED_BY(hub_->mu_);
  };

  // Of changes: the newest `kept`, and of these no more than `kept_bytes`
  // (server/core/job_size.h), but always the last one. What versions of a job
  // share counts once.
  explicit WatchHub(size_t kept = 8192, size_t kept_bytes = 64 << 20)
      : kept_(kept), kept_bytes_(kept_bytes) {}

  // `version` is where the store stands at the start.
  void Start(int64_t version);
  void Publish(int64_t version,
               const std::vector<std::shared_ptr<const Job>>& jobs);
  void PublishDeleted(int64_t version, const std::vector<JobName>& jobs);
  // Of many jobs at once: each call wakes every watcher of Wait.
  void PublishProgress(const std::map<JobName, JobProgressInfo>& progress);
  void ForgetProgress(const JobName& job);
  // Wakes every watcher for good: the coordinator stops.
  void Close();

  // Waits until there is news about `job` (empty: any) after `version` and
  // `progress_sequence`, or until `deadline`; then News may be empty.
  // OutOfRange: `version` is older than what is kept. Unavailable: closed.
  StatusOr<News> Wait(const JobName& job, int64_t version,
                      uint64_t progress_sequence, MonoTime deadline);

 private:
  struct Progress {
    uint64_t sequence = 0;
    JobProgressInfo info;
  };
  // Of something that changes share.
  struct Share {
    // How many changes have it.
    size_t changes = 0;
    size_t bytes = 0;
  };
  void CountShares(const Change& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropShares(const Change& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Add(int64_t version, std::vector<Change> changes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status CheckKept(int64_t version) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Those who watch `job`, or any, and who wait: they had taken everything up
  // to `version` and `progress_sequence`.
  void Tell(const JobName& job, int64_t version, uint64_t progress_sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t Count(const JobName& job, int64_t version) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  News Collect(const JobName& job, int64_t version, uint64_t progress_sequence,
               size_t most = SIZE_MAX) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t kept_;
  const size_t kept_bytes_;
  mutable Mutex mu_;
  CondVar news_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  // Changes after this version are kept.
  int64_t oldest_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t newest_ ABSL_GUARDED_BY(mu_) = 0;
  // By version.
  std::deque<Change> changes_ ABSL_GUARDED_BY(mu_);
  // Of the changes, and once of each thing that they share.
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::unordered_map<const void*, Share> shares_ ABSL_GUARDED_BY(mu_);
  uint64_t progress_sequence_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<JobName, Progress> progress_ ABSL_GUARDED_BY(mu_);
  // By their job; empty: any.
  std::multimap<JobName, Watch*> watches_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_WATCH_HUB_H_
