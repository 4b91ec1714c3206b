// Ranks of one generation of a job, and where they run or ran.
#ifndef LOCKSTEP_SERVER_COORDINATOR_FOUND_RANKS_H_
#define LOCKSTEP_SERVER_COORDINATOR_FOUND_RANKS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/model/job.h"

namespace lockstep::server {

struct FoundRanks {
  JobName job;
  std::string job_uid;
  Generation generation = 0;
  // Ascending, by node.
  std::map<NodeName, std::vector<int32_t>> ranks;
  // Why evidence of them is kept; kNone: they run, and nothing is kept.
  Reason kept_for = Reason::kNone;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_FOUND_RANKS_H_
