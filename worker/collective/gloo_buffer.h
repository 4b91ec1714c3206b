// A Gloo buffer whose waits end when their peer is gone or all is cut, and at
// the deadline of the whole operation. See gloo_mesh.h.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_GLOO_BUFFER_H_
#define LOCKSTEP_WORKER_COLLECTIVE_GLOO_BUFFER_H_

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "worker/collective/gloo_mesh.h"

namespace lockstep {

// Has an inner buffer per peer, so that each wait is for one known peer, and
// waits in the order in which operations were posted. Progress thread only,
// except Interrupt*.
class TrackedBuffer final : public gloo::transport::UnboundBuffer {
 public:
  // `peers` must outlive this.
  TrackedBuffer(std::shared_ptr<gloo::transport::Context> inner,
                PeerStates* peers, void* data, size_t size);
  ~TrackedBuffer() override;

  using gloo::transport::UnboundBuffer::waitRecv;
  using gloo::transport::UnboundBuffer::waitSend;
  // Throw gloo::IoException when the message will never be complete.
  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override;
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override;
  void send(int rank, uint64_t slot, size_t offset, size_t bytes) override;
  void recv(int rank, uint64_t slot, size_t offset, size_t bytes) override;
  // Waits, at most until `deadline`, until what was sent to `rank` is with the
  // kernel, or nobody reads it any more. Throws as waitSend.
  void FinishSend(int rank, MonoTime deadline);

  // Not used by the collectives that lockstep calls; throw.
  void recv(std::vector<int> ranks, uint64_t slot, size_t offset,
            size_t bytes) override;
  void abortWaitRecv() override;
  void abortWaitSend() override;

  // Wake the waits for `rank`, or all, to look at the peers' states again.
  // The caller holds the lock of PeerStates.
  void Interrupt(int rank);
  void InterruptAll();

 private:
  UnboundBuffer* Inner(int rank);
  template <typename WaitFunction>
  bool Wait(std::deque<int>* posted, int* rank, WaitFunction wait);

  const std::shared_ptr<gloo::transport::Context> inner_;
  PeerStates* const peers_;
  // Changed under the lock of PeerStates; read by this thread without it.
  std::map<int, std::unique_ptr<UnboundBuffer>> by_rank_;
  std::deque<int> sends_;
  std::deque<int> receives_;
};

// Hands out TrackedBuffers; pairs are the inner context's.
class TrackingContext final : public gloo::transport::Context {
 public:
  TrackingContext(std::shared_ptr<gloo::transport::Context> inner,
                  PeerStates* peers);
  std::unique_ptr<gloo::transport::Pair>& getPair(int rank) override;
  std::unique_ptr<gloo::transport::Pair>& createPair(int rank) override;
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(
      void* data, size_t size) override;

 private:
  const std::shared_ptr<gloo::transport::Context> inner_;
  PeerStates* const peers_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_GLOO_BUFFER_H_
