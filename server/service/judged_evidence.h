// What evidence about a job's ranks says about them.
#ifndef LOCKSTEP_SERVER_SERVICE_JUDGED_EVIDENCE_H_
#define LOCKSTEP_SERVER_SERVICE_JUDGED_EVIDENCE_H_

#include <map>
#include <vector>

#include "common/model/evidence.h"
#include "server/coordinator/found_ranks.h"
#include "server/core/hang_verdict.h"
#include "server/core/stack_groups.h"
#include "server/service/evidence_desk.h"

namespace lockstep::server {

// What to ask the nodes of `found`.
std::map<NodeName, EvidenceQuery> QueriesFor(const FoundRanks& found);

struct JudgedEvidence {
  // By rank.
  std::vector<RankEvidence> ranks;
  std::vector<StackGroup> groups;
  HangVerdict verdict;
};

// Of all that the nodes answered, only ranks that they were asked for count,
// each once. Ranks that had ended before count, too: others may wait for them.
JudgedEvidence Judge(const FoundRanks& found, std::vector<RankEvidence> ranks);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_JUDGED_EVIDENCE_H_
