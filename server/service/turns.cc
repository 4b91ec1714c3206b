#include "server/service/turns.h"

#include <grpcpp/server_context.h>

#include <algorithm>

#include "common/rpc/caller.h"
#include "server/service/request.h"

namespace lockstep {
namespace {

// How soon a waiting call notices that its client is gone.
constexpr Duration kCancelPoll = std::chrono::milliseconds(200);

MonoTime Now() { return SystemClock().Now().mono; }

}  // namespace

Turns::Turn::Turn(Turns* turns, grpc::ServerContext* context)
    : turns_(turns), context_(context), caller_(OwnerName(CallerOf(*context))) {
  MutexLock lock(&turns_->mu_);
  last_progress_ = Now();
  status_ = turns_->Wait(*this);
  if (!status_.ok()) return;
  last_progress_ = Now();
  turns_->open_.insert(this);
}

Turns::Turn::~Turn() {
  MutexLock lock(&turns_->mu_);
  if (turns_->open_.erase(this) > 0) turns_->left_.NotifyAll();
}

void Turns::Turn::Progress() {
  MutexLock lock(&turns_->mu_);
  last_progress_ = Now();
}

bool Turns::IsFull(const std::string& caller) {
  const auto of_caller =
      std::count_if(open_.begin(), open_.end(),
                    [&](const Turn* turn) { return turn->caller_ == caller; });
  return open_.size() >= static_cast<size_t>(limits_.at_once) ||
         of_caller >= limits_.of_caller;
}

Status Turns::Wait(const Turn& turn) {
  const auto busy = [&] {
    mu_.AssertHeld();
    return WithReason(Unavailable("{} {} go on already: try again in a while",
                                  open_.size(), what_),
                      "BUSY");
  };
  if (!IsFull(turn.caller_)) return OkStatus();
  if (waiting_ >= limits_.waiting) return busy();
  ++waiting_;
  const MonoTime deadline = Now() + limits_.patience;
  Status status;
  while (IsFull(turn.caller_) && status.ok()) {
    const MonoTime now = Now();
    if (now >= deadline) {
      status = busy();
    } else if (turn.context_->IsCancelled()) {
      status = Cancelled("the call was cancelled");
    } else {
      (void)left_.WaitUntil(&mu_, std::min(deadline, now + kCancelPoll));
    }
  }
  --waiting_;
  return status;
}

void Turns::CancelIdle(MonoTime time) {
  MutexLock lock(&mu_);
  for (Turn* turn : open_) {
    turn->turns_->mu_.AssertHeld();
    if (turn->last_progress_ <= time) turn->context_->TryCancel();
  }
}

}  // namespace lockstep
