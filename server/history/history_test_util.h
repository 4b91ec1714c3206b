// Jobs that run, for the tests of histories.
#ifndef LOCKSTEP_SERVER_HISTORY_HISTORY_TEST_UTIL_H_
#define LOCKSTEP_SERVER_HISTORY_HISTORY_TEST_UTIL_H_

#include <memory>
#include <string>

#include "server/coordinator/snapshot.h"

namespace lockstep::server {

inline constexpr WallTime kBegin{Duration{std::chrono::hours(24 * 20'000)}};

// A running job of `ranks` ranks, each with a core and GPU `rank` of node "a".
inline JobSnapshot RunningJob(const std::string& name, int32_t ranks,
                              JobKind kind = JobKind::kNative) {
  Job job;
  job.spec.name = name;
  job.spec.kind = kind;
  job.uid = "uid-" + name;
  job.owner = "user/ann";
  job.state = JobState::kRunning;
  job.create_time = kBegin;
  job.start_time = kBegin;
  job.generation = 1;
  JobSnapshot snapshot;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    TaskStatus task;
    task.type = TaskType::kWorker;
    task.index = rank;
    task.node = "a";
    task.gpus = {rank};
    task.ranks.resize(1);
    task.ranks[0].rank = rank;
    job.tasks.push_back(task);
    RankStatus& live = snapshot.live[rank];
    live.rank = rank;
    live.state = RankState::kStarted;
  }
  snapshot.job = std::make_shared<const Job>(job);
  snapshot.time = kBegin;
  return snapshot;
}

// Lets `passed` go by, in which each rank uses `cores` and the chief commits
// `steps`.
inline void Pass(Duration passed, double cores, int64_t steps,
                 JobSnapshot* snapshot) {
  snapshot->time += passed;
  for (auto& [number, rank] : snapshot->live) {
    rank.usage.seconds += ToSeconds(passed);
    rank.usage.cpu_seconds += cores * ToSeconds(passed);
    rank.usage.memory_bytes = int64_t{1} << 30;
  }
  if (snapshot->job->spec.kind != JobKind::kNative) return;
  if (!snapshot->progress) {
    snapshot->progress.emplace();
    snapshot->progress->chief.committed_step = 0;
  }
  RankProgress& chief = snapshot->progress->chief;
  chief.committed_step += steps;
  chief.samples = chief.committed_step * 32;
  chief.loss = 1.0 / static_cast<double>(1 + chief.committed_step);
}

inline CoordinatorView ViewOf(const std::vector<JobSnapshot>& jobs,
                              WallTime now) {
  CoordinatorView view;
  view.time.wall = now;
  for (const JobSnapshot& job : jobs) view.jobs.push_back({job, std::nullopt});
  return view;
}

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_HISTORY_HISTORY_TEST_UTIL_H_
