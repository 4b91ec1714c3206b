// Collects and judges evidence for callers that wait on their own thread.
//
// Thread-safe. A call takes at most as long as the desk waits for daemons.
#ifndef LOCKSTEP_SERVER_SERVICE_EVIDENCE_CALLS_H_
#define LOCKSTEP_SERVER_SERVICE_EVIDENCE_CALLS_H_

#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "server/coordinator/found_ranks.h"
#include "server/service/evidence_desk.h"
#include "server/service/judged_evidence.h"

namespace lockstep::server {

class EvidenceCalls {
 public:
  // Of a page server's few threads most must stay free.
  static constexpr int kMaxCalls = 2;

  // `desk` outlives this object.
  explicit EvidenceCalls(EvidenceDesk* desk) : desk_(desk) {}

  struct Evidence {
    JudgedEvidence judged;
    // Nodes without an answer, and why.
    std::vector<std::string> notes;
  };
  // Unavailable: kMaxCalls others wait already.
  StatusOr<Evidence> Collect(const FoundRanks& ranks) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  EvidenceDesk* const desk_;
  Mutex mu_;
  int calls_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_EVIDENCE_CALLS_H_
