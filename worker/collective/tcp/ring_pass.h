// Moves a vector round the ring: reduce-scatter, all-gather, or both in one.
//
// Pieces go in the order of ring.h. Bytes of a piece are combined and sent on
// as they come, while the rest is still coming: so a piece can be as large as
// the kernel takes at a time, and the data at work stays in the cache.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_RING_PASS_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_RING_PASS_H_

#include <cstddef>

#include "common/base/status.h"
#include "worker/collective/tcp/mesh.h"
#include "worker/collective/tcp/plan.h"
#include "worker/collective/tcp/ring.h"
#include "worker/collective/tcp/vector.h"

namespace lockstep::worker::collective::tcp {

// Which piece of a vector a rank sends or receives at a place of the ring.
// Pure.
class RingPieces {
 public:
  RingPieces(const Vector& vector, int rank, int size, const Plan& plan,
             bool reduces, bool gathers);

  // The ranks after and before this one.
  int next() const { return static_cast<int>((rank_ + 1) % size_); }
  int before() const { return static_cast<int>((rank_ + size_ - 1) % size_); }
  // The place of the first piece.
  RingCursor Begin() const { return {segments_, steps_, ahead_}; }
  // Elements of the piece at `at`, which the rank sends, or else receives.
  Range At(const RingCursor& at, bool sent) const;
  // Whether the piece that comes at `at` is to be combined, and whether no
  // operand comes after it.
  bool Reduces(const RingCursor& at) const { return at.step() < reducing_; }
  bool ReducesLast(const RingCursor& at) const {
    return at.step() + 1 == reducing_;
  }

 private:
  const size_t count_;  // elements
  const size_t rank_;
  const size_t size_;
  const size_t reducing_;  // steps
  const size_t steps_;
  const size_t segments_;
  const size_t ahead_;
};

class RingPass {
 public:
  // After mesh->Begin. `scratch`: of plan.chunk bytes. All borrowed.
  RingPass(Mesh* mesh, const Plan& plan, const Vector& vector, char* scratch,
           bool reduces, bool gathers);

  // Once. Returns when this rank has its result and nothing of the operation
  // is left on its connections.
  Status Run();

 private:
  bool done() const;
  // Sends and receives what goes; whether something moved.
  bool Move();
  bool SendOn();
  bool ReceiveOn();
  // Bytes of the outgoing piece that can be sent now.
  size_t SendableBytes() const;
  // All bytes that are there have been sent, and more are to come.
  bool IsStarved() const;
  void UseWhatCame();

  void EnterOut();
  void EnterIn();

  Mesh* const mesh_;
  const Vector vector_;
  char* const scratch_;
  const RingPieces pieces_;
  RingCursor out_;
  RingCursor in_;
  size_t sent_ = 0;      // pieces
  size_t received_ = 0;  // pieces
  Flow send_;
  size_t send_bytes_ = 0;  // of the piece; send_.bytes may be fewer
  Flow receive_;
  size_t used_ = 0;  // bytes of the piece that are where they belong
  // Both neighbours see this rank's header.
  Flow head_out_;
  Flow head_in_;
};

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_RING_PASS_H_
