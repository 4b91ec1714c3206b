#include "worker/runtime/session_communicator.h"

#include <algorithm>
#include <utility>

#include "worker/runtime/peer_lost.h"

namespace lockstep::worker::runtime {
namespace {

Status Newer(uint32_t recovery) {
  return Aborted("recovery {} has begun", recovery);
}

}  // namespace

std::shared_ptr<const std::atomic<bool>> SessionCommunicator::BeginForming(
    uint32_t recovery) {
  MutexLock lock(&mu_);
  cancelled_ = std::make_shared<std::atomic<bool>>(false);
  forming_ = recovery;
  CancelForming();
  return cancelled_;
}

void SessionCommunicator::CancelForming() {
  if (cancelled_ && (ended_ || forming_ < newest_)) cancelled_->store(true);
}

Status SessionCommunicator::Adopt(
    std::unique_ptr<collective::Communicator> communicator,
    const Membership& membership, uint32_t recovery) {
  MutexLock lock(&mu_);
  communicator_ = std::move(communicator);
  view_ = communicator_.get();
  membership_ = membership;
  recovery_ = recovery;
  trains_ = false;
  patience_.reset();
  // The end came while it formed: EndGeneration had nothing to abort then.
  if (ended_) {
    communicator_->Abort(end_reason_);
    return MarkPeerLost(Aborted("{}", end_reason_));
  }
  if (recovery < newest_) {
    const Status newer = Newer(newest_);
    communicator_->Abort(Message(newer));
    return MarkPeerLost(newer);
  }
  return OkStatus();
}

void SessionCommunicator::SetTrains() {
  MutexLock lock(&mu_);
  trains_ = true;
}

void SessionCommunicator::Drop() {
  lone_.reset();
  std::unique_ptr<collective::Communicator> dropped;
  MutexLock lock(&mu_);
  dropped = std::move(communicator_);
  view_ = nullptr;
  trains_ = false;
  patience_.reset();
}

void SessionCommunicator::Abort(std::string_view reason) {
  MutexLock lock(&mu_);
  if (communicator_) communicator_->Abort(reason);
}

void SessionCommunicator::EndGeneration(const std::string& reason) {
  MutexLock lock(&mu_);
  ended_ = true;
  end_reason_ = reason;
  CancelForming();
  if (communicator_) communicator_->Abort(reason);
}

void SessionCommunicator::Leave(std::string_view reason) {
  MutexLock lock(&mu_);
  if (communicator_ && !patience_) communicator_->Abort(reason);
}

// A member that is alone notices no abort.
Status SessionCommunicator::CheckMembership() {
  MutexLock lock(&mu_);
  if (ended_) return MarkPeerLost(Aborted("{}", end_reason_));
  if (recovery_ < newest_) return MarkPeerLost(Newer(newest_));
  return OkStatus();
}

// A recovery in between, which was not announced here, may have lost ranks.
bool SessionCommunicator::OnlyReturns(uint32_t recovery,
                                      std::span<const int> away) const {
  const uint32_t before = std::max(newest_, recovery_);
  const bool aborted = recovery_ < newest_ && !patience_;
  if (!communicator_ || !trains_ || aborted || recovery != before + 1) {
    return false;
  }
  // A member that is in the next step already would wait for one that has left.
  if (communicator_->backend() == "nccl" && membership_.size() > 1) {
    return false;
  }
  return IsReturn(membership_,
                  MembersWithout(away, membership_.world_size,
                                 membership_.members[membership_.place]));
}

void SessionCommunicator::AbortOlder() {
  patience_.reset();
  if (communicator_ && recovery_ < newest_) {
    communicator_->Abort(Message(Newer(newest_)));
  }
}

void SessionCommunicator::Announce(uint32_t recovery,
                                   std::span<const int> away) {
  MutexLock lock(&mu_);
  const bool returns = OnlyReturns(recovery, away);
  newest_ = recovery;
  CancelForming();
  if (!returns) return AbortOlder();
  // Where others return already, the time goes on.
  if (!patience_) patience_ = MonotonicNow() + kStepTime;
}

task::RankWait SessionCommunicator::CurrentWait() {
  MutexLock lock(&mu_);
  if (!communicator_) return {};
  const std::optional<collective::PeerWait> wait = communicator_->CurrentWait();
  if (!wait) return {};
  task::RankWait out;
  out.known = true;
  out.waiting = wait->waiting;
  if (wait->rank >= 0) out.peer = membership_.members[wait->rank];
  out.waits = wait->waits;
  return out;
}

void SessionCommunicator::Tick(MonoTime now) {
  {
    MutexLock lock(&mu_);
    if (patience_ && now >= *patience_) AbortOlder();
  }
  wait_page_.Show(CurrentWait());
}

}  // namespace lockstep::worker::runtime
