// Writes into a job's history which rank a stall comes from, by the evidence
// that the nodes kept at the stall.
//
// Thread-safe. Has a thread of its own.
#ifndef LOCKSTEP_SERVER_SERVICE_HANG_REPORTER_H_
#define LOCKSTEP_SERVER_SERVICE_HANG_REPORTER_H_

#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "server/coordinator/found_ranks.h"
#include "server/core/hang_verdict.h"
#include "server/service/evidence_desk.h"

namespace lockstep::server {

class HangReporter {
 public:
  // Further stalls that come at once are not reported: their evidence is kept
  // all the same.
  static constexpr size_t kMaxWaiting = 64;

  // `record` gets the verdict about the ranks. It is called on this object's
  // thread. `desk` outlives this object.
  HangReporter(
      EvidenceDesk* desk,
      std::function<void(const FoundRanks& ranks, const HangVerdict& verdict)>
          record);
  // Leaves what is not reported yet.
  ~HangReporter();
  HangReporter(const HangReporter&) = delete;
  HangReporter& operator=(const HangReporter&) = delete;

  // The nodes have kept evidence of `ranks`. Never blocks.
  void OnCaptured(const FoundRanks& ranks);

 private:
  class Bell;
  void Run();
  // Asks the nodes of all of them at once.
  void Report(const std::vector<FoundRanks>& stalls);
  // Returns false if this object is to end before the collection is done.
  bool Await(const EvidenceDesk::Collection& collection);

  EvidenceDesk* const desk_;
  const std::function<void(const FoundRanks&, const HangVerdict&)> record_;
  Mutex mu_;
  CondVar changed_;
  std::vector<FoundRanks> waiting_ ABSL_GUARDED_BY(mu_);
  // A collection is complete.
  bool rung_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // Last: it uses the others.
  std::thread thread_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_HANG_REPORTER_H_
