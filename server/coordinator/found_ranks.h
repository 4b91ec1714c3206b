// Ranks of one generation of a job, and where they run or ran.
#ifndef LOCKSTEP_SERVER_COORDINATOR_FOUND_RANKS_H_
#define LOCKSTEP_SERVER_COORDINATOR_FOUND_RANKS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/model/job.h"

namespace lockstep::server {

// A rank that had ended, while others of its generation ran on.
struct EndedRank {
  NodeName node;
  // "exit code 0".
  std::string how;
  WallTime time{};
};

struct FoundRanks {
  JobName job;
  std::string job_uid;
  Generation generation = 0;
  // Of an ended attempt, its number; 0: it runs.
  int32_t attempt = 0;
  // Ascending, by node.
  std::map<NodeName, std::vector<int32_t>> ranks;
  // Those of the generation that have ended, by rank. Of an ended attempt, all:
  // their times tell which ended before the evidence was captured.
  std::map<int32_t, EndedRank> ended;
  // Why evidence of them is kept; kNone: they run, and nothing is kept.
  Reason kept_for = Reason::kNone;
  // How the attempt failed by what its ranks did, a sentence. Empty: it did
  // not.
  std::string failure = {};
  // The ranks that did it.
  std::vector<int32_t> failed = {};
  // Which ranks are away, or what all wait for: "2 of 3 ranks train;
  // rank 1 is away", "recovery 6: the ranks form a new communicator". Empty:
  // nothing of that kind.
  std::string note = {};
};

// Adds `rank` of a task on `node` to found->ended if it has ended.
inline void AddEnded(const NodeName& node, const RankStatus& rank,
                     FoundRanks* found) {
  if (!rank.exit) return;
  found->ended[rank.rank] = {node, Describe(*rank.exit), rank.exit->end_time};
}

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_FOUND_RANKS_H_
