#include "worker/runtime/session_communicator.h"

#include <utility>

#include "worker/runtime/peer_lost.h"

namespace lockstep::worker::runtime {
namespace {

Status Newer(uint32_t recovery) {
  return Aborted("recovery {} replaces lost ranks", recovery);
}

}  // namespace

Status SessionCommunicator::Adopt(
    std::unique_ptr<collective::Communicator> communicator, uint32_t recovery) {
  MutexLock lock(&mu_);
  communicator_ = std::move(communicator);
  view_ = communicator_.get();
  recovery_ = recovery;
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

void SessionCommunicator::Drop() {
  std::unique_ptr<collective::Communicator> dropped;
  MutexLock lock(&mu_);
  dropped = std::move(communicator_);
  view_ = nullptr;
}

void SessionCommunicator::Abort(std::string_view reason) {
  MutexLock lock(&mu_);
  if (communicator_) communicator_->Abort(reason);
}

void SessionCommunicator::EndGeneration(const std::string& reason) {
  MutexLock lock(&mu_);
  ended_ = true;
  end_reason_ = reason;
  if (communicator_) communicator_->Abort(reason);
}

void SessionCommunicator::EndRecoveries(uint32_t recovery) {
  MutexLock lock(&mu_);
  newest_ = recovery;
  if (communicator_ && recovery_ < newest_) {
    communicator_->Abort(Message(Newer(newest_)));
  }
}

}  // namespace lockstep::worker::runtime
