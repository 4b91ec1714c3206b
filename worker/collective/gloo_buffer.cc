#include "worker/collective/gloo_buffer.h"

#include <gloo/common/error.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace lockstep {

using std::chrono::milliseconds;

TrackedBuffer::TrackedBuffer(std::shared_ptr<gloo::transport::Context> inner,
                             PeerStates* peers, void* data, size_t size)
    : UnboundBuffer(data, size), inner_(std::move(inner)), peers_(peers) {
  peers_->Add(this);
}

TrackedBuffer::~TrackedBuffer() { peers_->Remove(this); }

gloo::transport::UnboundBuffer* TrackedBuffer::Inner(int rank) {
  auto it = by_rank_.find(rank);
  if (it == by_rank_.end()) {
    auto buffer = inner_->createUnboundBuffer(ptr, size);
    MutexLock lock(peers_->mu());
    it = by_rank_.emplace(rank, std::move(buffer)).first;
  }
  return it->second.get();
}

void TrackedBuffer::send(int rank, uint64_t slot, size_t offset, size_t bytes) {
  // A peer's connection that is broken throws here.
  peers_->failed = rank;
  Inner(rank)->send(rank, slot, offset, bytes);
  peers_->failed = -1;
  sends_.push_back(rank);
}

void TrackedBuffer::recv(int rank, uint64_t slot, size_t offset, size_t bytes) {
  peers_->failed = rank;
  Inner(rank)->recv(rank, slot, offset, bytes);
  peers_->failed = -1;
  receives_.push_back(rank);
}

template <typename WaitFunction>
bool TrackedBuffer::Wait(std::deque<int>* posted, int* rank,
                         WaitFunction wait) {
  if (posted->empty()) throw gloo::IoException("nothing was posted");
  const int peer = posted->front();
  peers_->failed = peer;
  peers_->waiting_for.store(peer);
  for (;;) {
    if (peers_->IsCut()) throw gloo::IoException("cut");
    if (const int lost = peers_->lost(); lost >= 0) {
      peers_->failed = lost;
      throw gloo::IoException("closed by peer");
    }
    // Once the peer is gone, what has not ended never will: look only. (A
    // look that fails closes all connections of the context.)
    const bool gone = peers_->IsGone(peer);
    const auto left =
        std::chrono::ceil<milliseconds>(peers_->deadline() - MonotonicNow());
    if (left <= milliseconds(0)) throw gloo::IoException("deadline");
    if (wait(Inner(peer), gone ? milliseconds(0) : left)) break;
    // Interrupted: the states have changed.
  }
  peers_->failed = -1;
  peers_->waiting_for.store(-1);
  posted->pop_front();
  if (rank != nullptr) *rank = peer;
  return true;
}

bool TrackedBuffer::waitRecv(int* rank, milliseconds) {
  return Wait(&receives_, rank, [](UnboundBuffer* inner, milliseconds timeout) {
    return inner->waitRecv(nullptr, timeout);
  });
}

bool TrackedBuffer::waitSend(int* rank, milliseconds) {
  return Wait(&sends_, rank, [](UnboundBuffer* inner, milliseconds timeout) {
    return inner->waitSend(nullptr, timeout);
  });
}

void TrackedBuffer::FinishSend(int rank, MonoTime deadline) {
  while (!peers_->IsGone(rank) && peers_->lost() < 0 && !peers_->IsCut()) {
    const auto left =
        std::chrono::ceil<milliseconds>(deadline - MonotonicNow());
    if (Inner(rank)->waitSend(nullptr, std::max(left, milliseconds(0)))) return;
    // Interrupted: the states have changed.
  }
}

void TrackedBuffer::recv(std::vector<int>, uint64_t, size_t, size_t) {
  throw gloo::InvalidOperationException("receive from any is not supported");
}
void TrackedBuffer::abortWaitRecv() {
  throw gloo::InvalidOperationException("use PeerStates::SetCut");
}
void TrackedBuffer::abortWaitSend() {
  throw gloo::InvalidOperationException("use PeerStates::SetCut");
}

void TrackedBuffer::Interrupt(int rank) {
  const auto it = by_rank_.find(rank);
  if (it == by_rank_.end()) return;
  it->second->abortWaitRecv();
  it->second->abortWaitSend();
}

void TrackedBuffer::InterruptAll() {
  for (const auto& [rank, buffer] : by_rank_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

TrackingContext::TrackingContext(
    std::shared_ptr<gloo::transport::Context> inner, PeerStates* peers)
    : Context(inner->rank, inner->size),
      inner_(std::move(inner)),
      peers_(peers) {}

std::unique_ptr<gloo::transport::Pair>& TrackingContext::getPair(int rank) {
  return inner_->getPair(rank);
}

std::unique_ptr<gloo::transport::Pair>& TrackingContext::createPair(int rank) {
  return inner_->createPair(rank);
}

std::unique_ptr<gloo::transport::UnboundBuffer>
TrackingContext::createUnboundBuffer(void* data, size_t size) {
  return std::make_unique<TrackedBuffer>(inner_, peers_, data, size);
}

void PeerStates::Add(TrackedBuffer* buffer) {
  MutexLock lock(&mu_);
  buffers_.insert(buffer);
}

void PeerStates::Remove(TrackedBuffer* buffer) {
  MutexLock lock(&mu_);
  buffers_.erase(buffer);
}

void PeerStates::SetGone(int rank) {
  MutexLock lock(&mu_);
  gone_[rank] = true;
  for (TrackedBuffer* buffer : buffers_) buffer->Interrupt(rank);
}

bool PeerStates::IsGone(int rank) {
  MutexLock lock(&mu_);
  return gone_[rank];
}

void PeerStates::SetLost(int rank) {
  MutexLock lock(&mu_);
  int none = -1;
  if (!lost_.compare_exchange_strong(none, rank)) return;
  for (TrackedBuffer* buffer : buffers_) buffer->InterruptAll();
}

bool PeerStates::SetCut() {
  MutexLock lock(&mu_);
  if (cut_.exchange(true)) return false;
  for (TrackedBuffer* buffer : buffers_) buffer->InterruptAll();
  return true;
}

}  // namespace lockstep
