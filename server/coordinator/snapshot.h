// The coordinator's state at one time, as callers see it. Plain values that are
// read without the coordinator's lock.
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

namespace lockstep::server {

// A running job without a step for this long is reported.
inline constexpr Duration kQuietTime = std::chrono::seconds(30);
// A certificate that expires within this time is reported.
inline constexpr Duration kCertificateWarning = std::chrono::hours(24 * 30);

// Checks that the caller may act on this job.
using JobCheck = std::function<Status(const Job&)>;

// The stored and soft state of a job.
struct JobSnapshot {
  std::shared_ptr<const Job> job;
  // The time of the snapshot by the coordinator's clock.
  WallTime time{};
  // Why a queued job waits. For an active job, its problem, if any.
  std::optional<Cause> waiting;
  // The newest reports of its ranks, by rank.
  std::map<int32_t, RankStatus> live;
  std::optional<JobProgressInfo> progress;
  // The stalled rank that delays the others, long before the job is restarted
  // for it.
  std::optional<Stall> stall;
  // What evidence of the ranks says about it; empty: not known yet.
  std::string stall_verdict;
  Bill bill;
  // In a list: 1 is the next job to be placed. 0 if the job is not queued or
  // its position was not looked up.
  int64_t queue_position = 0;
  // When a waiting job is expected to start, from the limits of running time of
  // the jobs that hold what it needs. Absent if one of them has none.
  std::optional<WallTime> expected_start = {};
  // Details for the owner and admins were left out (server/query/visibility.h).
  bool details_hidden = false;
};

// A gang that runs on a node but is missing in the store.
struct UnknownGang {
  JobName job;
  std::string job_uid;
  Generation generation = 0;
};

struct NodeSnapshot {
  // With the displayed state and message: DRAINING, QUARANTINED ...
  Member member;
  Resources allocated;
  std::vector<JobName> jobs;
  // The job that holds each GPU in use, by index.
  std::map<int32_t, JobName> gpu_jobs = {};
  std::vector<UnknownGang> unknown = {};
  // The node failed jobs and gets no new work until then.
  std::optional<WallTime> cool_down_end = {};
  // No gang is placed on this node together with one of these.
  std::vector<NodeName> apart_from = {};
  // It is silent, and a program with something there waits for an operator.
  bool needs_operator = false;
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

// The cluster at one time, for metrics and pages.
struct CoordinatorView {
  struct JobEntry {
    JobSnapshot snapshot;
    // When one of its ranks was last seen to finish a step.
    std::optional<MonoTime> last_step;
  };
  Time time;
  bool store_healthy = true;
  Prices prices;
  // All jobs, ended ones included.
  std::map<JobState, int64_t> jobs_by_state;
  // Sorted by name: unfinished jobs and recently ended ones.
  std::vector<JobEntry> jobs;
  // Sorted by name.
  std::vector<NodeSnapshot> nodes;
  // The epoch of this coordinator. For each node that refuses it, the
  // coordinator that the node obeyed: "epoch 9".
  uint64_t epoch = 0;
  std::map<NodeName, std::string> refused_by;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_SNAPSHOT_H_
