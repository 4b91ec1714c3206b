// What callers see of the coordinator's state at one moment. Plain values: they
// are read without the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_SNAPSHOT_H_
#define LOCKSTEP_SERVER_COORDINATOR_SNAPSHOT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "server/core/bill.h"
#include "server/core/job.h"
#include "server/core/membership.h"
#include "server/core/progress.h"
#include "server/core/stall.h"

namespace lockstep {

// A running job that makes no step for this long is reported.
inline constexpr Duration kQuietTime = std::chrono::seconds(30);
// A certificate that ends within this time is reported, too.
inline constexpr Duration kCertificateWarning = std::chrono::hours(24 * 30);

// Says whether the caller may do something with this job.
using JobCheck = std::function<Status(const Job&)>;

// A job: what is stored of it, and what only memory knows.
struct JobSnapshot {
  std::shared_ptr<const Job> job;
  // When the snapshot was taken, by the coordinator's clock.
  WallTime time{};
  // Why a job waits now. Of an active job: what is wrong with it, if anything.
  std::optional<Cause> waiting;
  // The newest reports of its ranks, by rank.
  std::map<int32_t, RankStatus> live;
  std::optional<JobProgressInfo> progress;
  // The rank that holds the others up, long before the job is given up for it.
  std::optional<Stall> standing;
  Bill bill;
  // In a list: 1 is the next job to be placed. 0: the job does not wait, or its
  // position was not looked up.
  int64_t queue_position = 0;
  // What only the owner and admins may see was left out
  // (server/query/visibility.h).
  bool details_hidden = false;
};

// A gang that a node runs and the store does not know.
struct UnknownGang {
  JobName job;
  std::string job_uid;
  Generation generation = 0;
};

struct NodeSnapshot {
  // Its state and message are those that are shown: DRAINING, QUARANTINED ...
  Member member;
  Resources allocated;
  std::vector<JobName> jobs;
  std::vector<UnknownGang> unknown = {};
  // The node failed jobs and gets no new work until then.
  std::optional<WallTime> cool_down_end = {};
  // No gang is placed on both this node and one of these.
  std::vector<NodeName> apart_from = {};
};

struct CommitStats {
  int64_t commits = 0;
  double commit_seconds = 0;
  int64_t failed_commits = 0;
};

struct CoordinatorStats {
  std::map<JobState, int64_t> jobs;
  std::map<NodeState, int64_t> nodes;
  Resources capacity;
  Resources allocated;
  CommitStats commits;
  double oldest_queued_seconds = 0;
};

// The cluster at one moment, for metrics and pages.
struct CoordinatorView {
  struct JobEntry {
    JobSnapshot snapshot;
    // When one of its ranks was last seen to finish a step.
    std::optional<MonoTime> last_step;
  };
  Time time;
  bool store_healthy = true;
  Prices prices;
  // Of all jobs, also those that ended.
  std::map<JobState, int64_t> jobs_by_state;
  // By name: jobs that have not ended, or ended not long ago.
  std::vector<JobEntry> jobs;
  // By name.
  std::vector<NodeSnapshot> nodes;
  // The epoch of this coordinator. By node that refuses it: which coordinator
  // the node has obeyed, as in "epoch 9".
  uint64_t epoch = 0;
  std::map<NodeName, std::string> refused_by;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_SNAPSHOT_H_
