// The answer to a question what a job's ranks do or did. Pure.
#ifndef LOCKSTEP_SERVER_SERVICE_EVIDENCE_MESSAGE_H_
#define LOCKSTEP_SERVER_SERVICE_EVIDENCE_MESSAGE_H_

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "lockstep/v1/evidence.pb.h"
#include "server/coordinator/found_ranks.h"
#include "server/service/judged_evidence.h"

namespace lockstep::server {

// At most 3 MiB: stacks of ranks that are like others are left out first, and a
// note says so. `notes` name the nodes without an answer. `now` is the time of
// evidence that was not kept.
v1::JobEvidence EvidenceMessage(const FoundRanks& found,
                                const JudgedEvidence& judged,
                                const std::vector<std::string>& notes,
                                WallTime now);

// The same as JSON, to be kept as a file.
std::string EvidenceJson(const FoundRanks& found, const JudgedEvidence& judged,
                         const std::vector<std::string>& notes, WallTime now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_EVIDENCE_MESSAGE_H_
