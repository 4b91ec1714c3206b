// The jobs in memory: what is stored of each, what only memory knows, and the
// indices over them. Thread-compatible; guarded by the coordinator's lock.
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
#include "server/core/job.h"
#include "server/core/job_places.h"
#include "server/core/progress.h"
#include "server/core/report_pace.h"
#include "server/core/restart.h"
#include "server/core/scheduler.h"
#include "server/core/stall.h"

namespace lockstep {

struct JobEntry {
  explicit JobEntry(const StallOptions& options) : stall(options) {}

  // The rank of a running native job that holds the others up.
  std::optional<Stall> Standing(MonoTime now) const;

  std::shared_ptr<const Job> job;
  // Bytes of its spec.
  size_t spec_bytes = 0;
  // The job's cluster spec once a node was sent it; null before.
  std::shared_ptr<const SharedClusterSpec> cluster;
  JobPlaces places;
  ReportPace pace;
  MonoTime state_since;
  std::optional<MonoTime> all_started_since;
  AwaitedSince awaited_since;
  std::optional<Cause> waiting;
  ProgressMeter meter;
  StallWatch stall;
  // There is progress that watchers were not sent.
  bool progress_news = false;
  // The job's history says that a rank stands still, and since when.
  bool standing = false;
  MonoTime standing_since;
};

class JobRegistry {
 public:
  // Ended jobs by their end, oldest first.
  using Ended = std::set<std::pair<WallTime, JobName>>;

  explicit JobRegistry(const StallOptions& options) : options_(options) {}

  // By name.
  const std::map<JobName, JobEntry>& entries() const { return entries_; }
  // Jobs that have not ended.
  const std::set<JobName>& live() const { return live_; }
  // Jobs that wait for a place, the next one first.
  const std::set<QueuePlace>& queued() const { return queued_; }
  const Ended& ended() const { return ended_; }

  // Null: there is no such job.
  JobEntry* Find(const JobName& name);
  const JobEntry* Find(const JobName& name) const;
  // The job must be there.
  JobEntry& At(const JobName& name) { return entries_.at(name); }
  const JobEntry& At(const JobName& name) const { return entries_.at(name); }
  // NotFound: the job never was there (NO_SUCH_JOB) or was deleted
  // (JOB_DELETED).
  StatusOr<JobEntry*> Get(const JobName& name);
  // Null unless the job has not ended and is at this generation.
  JobEntry* FindCurrent(const JobName& name, Generation generation);
  // Null: no job has this uid.
  const JobEntry* FindUid(const std::string& uid) const;
  // Names of deleted jobs stay taken.
  bool IsDeleted(const JobName& name) const { return deleted_.contains(name); }
  void AddDeleted(const JobName& name) { deleted_.insert(name); }

  struct Applied {
    // Null: the job is new.
    std::shared_ptr<const Job> before;
    bool left_queue = false;
    bool new_generation = false;
  };
  // Puts `job`, which is stored, in the place of what was there.
  Applied Apply(std::shared_ptr<const Job> job, Time now);
  // Removes a job that has ended. Its name stays taken.
  void Delete(const JobName& name);

  // A node of the job reports. Returns false when the job should be decided
  // about now.
  bool MayWait(const NodeName& node, const GangStatus& report);
  // Whether the node runs `gang` though no job holds a place for it.
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

// When the job ended; the job has ended.
WallTime EndOf(const Job& job);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_JOB_REGISTRY_H_
