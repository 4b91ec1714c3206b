// The jobs in memory: stored and soft state of each, and indices.
// Thread-compatible; guarded by the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_JOB_REGISTRY_H_
#define LOCKSTEP_SERVER_COORDINATOR_JOB_REGISTRY_H_

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "server/coordinator/shared_cluster_spec.h"
#include "server/core/capture_wait.h"
#include "server/core/idle_watch.h"
#include "server/core/job.h"
#include "server/core/job_places.h"
#include "server/core/progress.h"
#include "server/core/recovery.h"
#include "server/core/report_pace.h"
#include "server/core/restart.h"
#include "server/core/scheduler.h"
#include "server/core/silence.h"
#include "server/core/stall.h"

namespace lockstep::server {

struct JobEntry {
  explicit JobEntry(const StallOptions& options) : stall(options) {}

  // Returns the stalled rank that delays a running job. Nullopt if the job does
  // not want to be watched.
  std::optional<Stall> StalledRank(MonoTime now) const;
  StallWatch::Ranks Ranks() const;

  std::shared_ptr<const Job> job;
  // The size of its spec.
  size_t spec_bytes = 0;
  // The job's cluster spec, once sent to a node; null before.
  std::shared_ptr<const SharedClusterSpec> cluster;
  JobPlaces places;
  ReportPace pace;
  MonoTime state_since;
  std::optional<MonoTime> all_started_since;
  // When waits began: for ranks; and when room was found for the running job
  // with more tasks (rescale.h), for so many in the last look.
  struct Awaited {
    AwaitedSince restarts;
    RecoveryWaits recovery;
    struct Room {
      int32_t size = 0;
      MonoTime since;
    };
    std::optional<Room> room;
  };
  Awaited awaited;
  std::optional<Cause> waiting;
  ProgressMeter meter;
  StallWatch stall;
  // There is progress that watchers have not received.
  bool progress_news = false;
  // What the job's history says already: that a rank stalls, since when; and
  // what becomes of its silent node; and that it is idle.
  struct Noted {
    bool stall = false;
    MonoTime stalled_since;
    // What evidence of its ranks says about that stall; empty: not known yet.
    std::string stall_verdict;
    // And the ranks that it names. Absent: not known yet.
    std::optional<std::set<int32_t>> stall_causes;
    // When that evidence was on disk.
    std::optional<MonoTime> captured;
    std::optional<Outlook::Kind> silence;
    bool idle = false;
  };
  Noted noted;
  CaptureWait capture;
  struct Idle {
    IdleWatch watch;
    // Why it is to be ended, whatever its ranks do while they save.
    std::optional<Cause> end;
    MonoTime end_since;
  };
  Idle idle;
};

class JobRegistry {
 public:
  // Ended jobs by end time, oldest first.
  using Ended = std::set<std::pair<WallTime, JobName>>;

  explicit JobRegistry(const StallOptions& options) : options_(options) {}

  // Sorted by name.
  const std::map<JobName, JobEntry>& entries() const { return entries_; }
  // Unfinished jobs.
  const std::set<JobName>& live() const { return live_; }
  // Queued jobs, the next one first.
  const std::set<QueuePlace>& queued() const { return queued_; }
  const Ended& ended() const { return ended_; }

  // Returns null if there is no such job.
  JobEntry* Find(const JobName& name);
  const JobEntry* Find(const JobName& name) const;
  // REQUIRES: the job exists.
  JobEntry& At(const JobName& name) { return entries_.at(name); }
  const JobEntry& At(const JobName& name) const { return entries_.at(name); }
  // NotFound if the job never existed (NO_SUCH_JOB) or was deleted
  // (JOB_DELETED).
  StatusOr<JobEntry*> Get(const JobName& name);
  // Returns null unless the job is unfinished and at this generation.
  JobEntry* FindCurrent(const JobName& name, Generation generation);
  // Returns null if no job has this uid.
  const JobEntry* FindUid(const std::string& uid) const;
  // Names of deleted jobs stay taken.
  bool IsDeleted(const JobName& name) const { return deleted_.contains(name); }
  void AddDeleted(const JobName& name) { deleted_.insert(name); }

  struct Applied {
    // Null for a new job.
    std::shared_ptr<const Job> before;
    bool left_queue = false;
    bool new_generation = false;
  };
  // Replaces the job by `job`, which is stored.
  Applied Apply(std::shared_ptr<const Job> job, Time now);
  // Removes an ended job. Its name stays taken.
  void Delete(const JobName& name);

  // Records a report of a node. Returns false if the job should be decided
  // about now.
  bool MayWait(const NodeName& node, const GangStatus& report);
  // True if the node runs `gang` but no job has it placed there.
  bool IsLeftOver(const NodeName& node, const GangStatus& gang) const;

 private:
  const StallOptions options_;
  std::map<JobName, JobEntry> entries_;
  std::set<JobName> live_;
  std::set<QueuePlace> queued_;
  std::set<JobName> deleted_;
  Ended ended_;
  std::map<std::string, JobName> uids_;
};

// Returns the end time of an ended job.
WallTime EndOf(const Job& job);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_JOB_REGISTRY_H_
