#include "worker/runtime/session_orders.h"

#include <algorithm>
#include <string>

#include "worker/runtime/session_impl.h"

namespace lockstep::worker::runtime {
namespace {

DirectiveOp OpOf(v1::RankDirective::Kind kind) {
  switch (kind) {
    case v1::RankDirective::CHECKPOINT:
      return DirectiveOp::kCheckpoint;
    case v1::RankDirective::STOP:
      return DirectiveOp::kStop;
    default:  // Of a newer daemon; lite enums are open.
      return DirectiveOp::kNone;
  }
}

}  // namespace

void PendingOrders::Add(const v1::RankDirective& directive) {
  MutexLock lock(&mu_);
  directives_.push_back(directive);
}

void PendingOrders::Offer(StepController* controller) {
  controller->SetDrain(drain_.load(std::memory_order_relaxed));
  std::deque<v1::RankDirective> directives;
  {
    MutexLock lock(&mu_);
    directives.swap(directives_);
  }
  for (const v1::RankDirective& directive : directives) {
    controller->Offer(OpOf(directive.kind()), directive.id());
  }
}

void CheckpointRecord::Saved(int64_t step) {
  int64_t newest = saved_.load();
  while (newest < step && !saved_.compare_exchange_weak(newest, step)) {
  }
}

Status CheckpointRecord::Check() const {
  const int64_t saved = saved_.load();
  if (stopped_early_ || saved >= tried_) return OkStatus();
  return WithReason(
      DataLoss("the last requested checkpoint, of step {}, was not saved: see "
               "the job's events; {}",
               tried_,
               saved < 0 ? std::string("this attempt has saved no other")
                         : fmt::format("the newest one is of step {}", saved)),
      kReasonCheckpointFailed);
}

}  // namespace lockstep::worker::runtime
