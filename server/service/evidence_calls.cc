#include "server/service/evidence_calls.h"

#include <utility>

namespace lockstep::server {
namespace {

class Bell final : public StreamPeer {
 public:
  void Wake() override {
    MutexLock lock(&mu_);
    rung_ = true;
    changed_.NotifyAll();
  }
  bool IsCancelled() const override { return false; }
  void Cancel() override {}

  void Wait(MonoTime deadline) {
    MutexLock lock(&mu_);
    while (!rung_ && changed_.WaitUntil(&mu_, deadline)) {
    }
    rung_ = false;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool rung_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

StatusOr<EvidenceCalls::Evidence> EvidenceCalls::Collect(
    const FoundRanks& ranks) {
  {
    MutexLock lock(&mu_);
    if (calls_ == kMaxCalls) {
      return Unavailable(
          "{} others look at ranks now; try again in a few seconds", calls_);
    }
    ++calls_;
  }
  Evidence evidence;
  {
    Bell bell;
    EvidenceDesk::Collection collection(desk_, QueriesFor(ranks), &bell);
    while (!collection.Done()) bell.Wait(collection.deadline());
    EvidenceDesk::Collected collected = collection.Take();
    evidence.notes = std::move(collected.notes);
    evidence.judged = Judge(ranks, std::move(collected.ranks));
  }
  MutexLock lock(&mu_);
  --calls_;
  return evidence;
}

}  // namespace lockstep::server
