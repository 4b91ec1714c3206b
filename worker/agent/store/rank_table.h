// The ranks of this node: their identities and file paths.
//
// Belongs to the event loop's thread.
#ifndef LOCKSTEP_WORKER_AGENT_STORE_RANK_TABLE_H_
#define LOCKSTEP_WORKER_AGENT_STORE_RANK_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/model/job.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/loop/core_runner.h"
#include "worker/agent/store/task_store.h"

namespace lockstep::worker::agent {

struct Rank {
  RankPaths paths;
  std::string job_uid;
  TaskType type = TaskType::kChief;
  int32_t index = 0;
  // Earlier attempts of the job.
  int32_t attempts_before = 0;
  std::vector<int32_t> gpus;
  // Of programs: what their progress is watched by, as in GangSpec.
  bool is_program = false;
  std::optional<Duration> stall_after;
  std::string progress_pattern;
  std::string output_directory;
  WallTime start{};
  bool ended = false;
  // TaskIdOf this start, which is also in LOCKSTEP_TASK and names its cgroup;
  // "" if it never started.
  std::string task_id;
};

class RankTable {
 public:
  // All are borrowed.
  RankTable(EventLoop* loop, const CoreRunner* core, const TaskStore* store)
      : loop_(loop), core_(core), store_(store) {}

  // Adds the rank if it is unknown. The reference is valid until Erase.
  Rank& Get(const RankRef& ref);
  void Erase(const RankRef& ref) { ranks_.erase(ref); }
  const std::map<RankRef, Rank>& all() const { return ranks_; }
  std::vector<RankRef> OfGang(const GangKey& key) const;
  bool AnyLive() const;
  bool HasEnded(const RankRef& ref) const;

 private:
  EventLoop* const loop_;
  const CoreRunner* const core_;
  const TaskStore* const store_;
  std::map<RankRef, Rank> ranks_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_STORE_RANK_TABLE_H_
