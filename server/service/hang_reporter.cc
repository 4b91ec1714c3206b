#include "server/service/hang_reporter.h"

#include <list>
#include <utility>

#include "common/base/clock.h"
#include "common/base/logging.h"
#include "server/service/judged_evidence.h"

namespace lockstep::server {

// Wakes the thread when a collection is complete.
class HangReporter::Bell final : public StreamPeer {
 public:
  explicit Bell(HangReporter* owner) : owner_(owner) {}

  void Wake() override {
    MutexLock lock(&owner_->mu_);
    owner_->rung_ = true;
    owner_->changed_.NotifyAll();
  }
  bool IsCancelled() const override { return false; }
  void Cancel() override {}

 private:
  HangReporter* const owner_;
};

HangReporter::HangReporter(
    EvidenceDesk* desk,
    std::function<void(const FoundRanks& ranks, const HangVerdict& verdict)>
        record)
    : desk_(desk), record_(std::move(record)), thread_([this] { Run(); }) {}

HangReporter::~HangReporter() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void HangReporter::OnCaptured(const FoundRanks& ranks) {
  MutexLock lock(&mu_);
  if (waiting_.size() >= kMaxWaiting) {
    LOG_WARN(
        "job {}: {} other jobs stalled at the same time; see `lockstep "
        "jobs why {}`",
        ranks.job, waiting_.size(), ranks.job);
    return;
  }
  waiting_.push_back(ranks);
  changed_.NotifyAll();
}

void HangReporter::Run() {
  for (;;) {
    std::vector<FoundRanks> stalls;
    {
      MutexLock lock(&mu_);
      while (waiting_.empty() && !stopping_) changed_.Wait(&mu_);
      if (stopping_) return;
      stalls.swap(waiting_);
    }
    Report(stalls);
  }
}

void HangReporter::Report(const std::vector<FoundRanks>& stalls) {
  Bell bell(this);
  std::list<EvidenceDesk::Collection> collections;
  for (const FoundRanks& stall : stalls) {
    collections.emplace_back(desk_, QueriesFor(stall), &bell);
  }
  auto collection = collections.begin();
  for (const FoundRanks& stall : stalls) {
    if (!Await(*collection)) return;
    record_(stall, Judge(stall, collection->Take().ranks).verdict);
    ++collection;
  }
}

bool HangReporter::Await(const EvidenceDesk::Collection& collection) {
  while (!collection.Done()) {
    MutexLock lock(&mu_);
    while (!rung_ && !stopping_ &&
           changed_.WaitUntil(&mu_, collection.deadline())) {
    }
    rung_ = false;
    if (stopping_) return false;
  }
  return true;
}

}  // namespace lockstep::server
