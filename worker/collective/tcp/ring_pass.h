// A vector's way round the ring: reduce-scatter, all-gather, or both in one.
//
// Pieces go in the order of ring.h. What of a piece has come is combined and
// sent on at once, while the rest comes: so a piece can be as large as the
// kernel takes at a time, and what is worked on stays in the cache.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_RING_PASS_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_RING_PASS_H_

#include <cstddef>

#include "common/base/status.h"
#include "worker/collective/tcp/mesh.h"
#include "worker/collective/tcp/plan.h"
#include "worker/collective/tcp/ring.h"
#include "worker/collective/tcp/vector.h"

namespace lockstep::tcp {

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
  // How much of the piece that goes is there to be sent.
  size_t SendableBytes() const;
  // What was there has been sent, and more is to come.
  bool IsStarved() const;
  void UseWhatCame();

  Range PieceAt(const RingCursor& at, bool sent) const;
  void EnterOut();
  void EnterIn();

  Mesh* const mesh_;
  const Vector vector_;
  char* const scratch_;
  const size_t size_;
  const int next_;
  const int before_;
  const size_t reducing_;  // steps
  const size_t segments_;
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

}  // namespace lockstep::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_RING_PASS_H_
