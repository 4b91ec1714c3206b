// The Controls of all ranks, as one rank sees them while it works on the
// operation at the front of its queue (layout.h).
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_RANKS_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_RANKS_H_

#include <cstdint>

#include "worker/collective/shm/layout.h"
#include "worker/collective/shm/rendezvous.h"
#include "worker/collective/shm/segment.h"

namespace lockstep::worker::collective::shm {

// Used by the thread that runs the operations.
class Ranks {
 public:
  // `group` outlives it.
  Ranks(const Group& group, int rank)
      : members_(group.members.data()),
        rank_(rank),
        size_(static_cast<int>(group.members.size())) {}

  // This rank, and the number of ranks.
  int rank() const { return rank_; }
  int size() const { return size_; }

  const Segment& segment(int rank) const { return members_[rank].segment; }
  Control* control(int rank) const { return segment(rank).control(); }

  // The number of the operation at the front: all before it are finished.
  uint64_t front() const { return front_; }
  // The entry of `rank` for the operation at the front.
  Entry& entry(int rank) const { return control(rank)->ring[front_ % kRing]; }
  // Goes on to the next operation, and shows the others that this one is done.
  void FinishFront() {
    ++front_;
    control(rank_)->done.store(front_, std::memory_order_release);
  }

 private:
  const Member* const members_;
  const int rank_;
  const int size_;
  uint64_t front_ = 0;
};

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_RANKS_H_
