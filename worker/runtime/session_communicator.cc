#include "worker/runtime/session_communicator.h"

#include <utility>

#include "worker/runtime/peer_lost.h"

namespace lockstep::worker::runtime {

Status SessionCommunicator::Adopt(
    std::unique_ptr<collective::Communicator> communicator) {
  MutexLock lock(&mu_);
  communicator_ = std::move(communicator);
  view_ = communicator_.get();
  // The end came while it formed: EndGeneration had nothing to abort then.
  if (ended_) {
    communicator_->Abort(end_reason_);
    return MarkPeerLost(Aborted("{}", end_reason_));
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

}  // namespace lockstep::worker::runtime
