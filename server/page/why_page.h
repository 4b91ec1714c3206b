// The page that says why a job is as it is: its verdict and the evidence. Pure.
#ifndef LOCKSTEP_SERVER_PAGE_WHY_PAGE_H_
#define LOCKSTEP_SERVER_PAGE_WHY_PAGE_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/http/server.h"
#include "server/coordinator/snapshot.h"
#include "server/service/evidence_calls.h"

namespace lockstep::server {

struct WhyPart {
  // "Now", "Before attempt 2 was stopped".
  std::string title;
  // Of the address of its file: "now=1", "attempt=2".
  std::string parameter;
  // Or why there is none.
  StatusOr<EvidenceCalls::Evidence> evidence;
};

// Why the job is as it is, by its record, in a sentence.
std::string VerdictOf(const JobSnapshot& snapshot);

// Links to what is kept of the attempts `others`. REQUIRES: the reader may see
// the job's details.
http::HttpResponse WhyPage(const std::string& cluster,
                           const JobSnapshot& snapshot,
                           const std::vector<WhyPart>& parts,
                           const std::vector<int32_t>& others);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_PAGE_WHY_PAGE_H_
