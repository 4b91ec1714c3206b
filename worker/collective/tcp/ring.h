// The order in which the pieces of a ring go round. Pure.
//
// Every rank's part of the vector is cut in `segments` pieces. Each segment
// makes `steps` steps: in each, a rank sends one piece to the next rank and
// receives one from the rank before. Segment k makes step s in slot
// k + ahead * s, so that several segments are on their way and the connection
// is never without bytes. Pieces are sent and received in the order of their
// slots, in a slot by their step: the same order on all ranks, so the bytes
// need no description.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_RING_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_RING_H_

#include <cstddef>

namespace lockstep::worker::collective::tcp {

class RingCursor {
 public:
  RingCursor(size_t segments, size_t steps, size_t ahead);

  bool done() const { return slot_ == slots_; }
  size_t segment() const { return slot_ - ahead_ * step_; }
  size_t step() const { return step_; }
  void Next();
  // Whether the cursor is beyond `step` of `segment`.
  bool IsBeyond(size_t segment, size_t step) const {
    const size_t slot = segment + ahead_ * step;
    return slot < slot_ || (slot == slot_ && step < step_);
  }

 private:
  void EnterSlot();

  const size_t segments_;
  const size_t steps_;
  const size_t ahead_;
  const size_t slots_;
  size_t slot_ = 0;
  size_t step_ = 0;
};

// Elements [begin, end).
struct Range {
  size_t begin = 0;
  size_t end = 0;
};

// Piece `index` of `pieces` of `range`: in order, all elements once, nearly
// equal, beginning at multiples of 16 elements from the range's begin.
Range PieceOf(Range range, size_t pieces, size_t index);
// Returns the smallest number of pieces of which none has more than `most`
// elements, of which there are at least 16.
size_t PiecesFor(size_t count, size_t most);

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_RING_H_
