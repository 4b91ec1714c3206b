// Finds the rank that delays the others of a job, and its node. Pure: callers
// pass `now`.
#ifndef LOCKSTEP_SERVER_METRICS_STRAGGLER_WATCH_H_
#define LOCKSTEP_SERVER_METRICS_STRAGGLER_WATCH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "server/coordinator/snapshot.h"

namespace lockstep::server {

class StragglerWatch {
 public:
  // Adds a count for each new node of `job`.
  void AddNodes(const Job& job);
  // Discards the windows of ended ranks.
  void NewGeneration();
  // Compares the ranks of a RUNNING native job over a window of 20 s and 20
  // steps. `committed` is the job's last committed step.
  void Look(const JobSnapshot& snapshot, int64_t committed, MonoTime now);

  // The share of the ranks' time spent waiting for the last one in the last
  // window.
  std::optional<double> wait_ratio() const { return wait_ratio_; }
  // The rank that was clearly the last in the last window.
  std::optional<int32_t> late_rank() const { return late_rank_; }
  // Windows with a late rank, by its node. All nodes of the job have an entry.
  const std::map<NodeName, int64_t>& events() const { return events_; }
  // The late rank of the newest such window in this generation, by its node.
  const std::map<NodeName, int32_t>& late_ranks() const { return late_ranks_; }

 private:
  struct Window {
    MonoTime since;
    int64_t step = 0;
    // By rank: seconds waited for others, and in all.
    std::map<int32_t, std::pair<double, double>> ranks;
  };

  void CloseWindow(const Job& job, const Window& end);

  std::optional<Window> window_;
  std::optional<double> wait_ratio_;
  std::optional<int32_t> late_rank_;
  std::map<NodeName, int64_t> events_;
  std::map<NodeName, int32_t> late_ranks_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_STRAGGLER_WATCH_H_
