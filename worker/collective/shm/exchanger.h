// How an all-to-all goes through the stages of all segments (layout.h).
//
// It is cut into as many blocks on all ranks. A block has a share of each part,
// so that all parts end with the last block, however unequal they are. A rank
// puts the shares for all others into its slot, one behind the other, and
// before them where each begins.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_EXCHANGER_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_EXCHANGER_H_

#include <cstddef>
#include <cstdint>

#include "worker/collective/communicator.h"
#include "worker/collective/shm/chunks.h"
#include "worker/collective/shm/store_policy.h"

namespace lockstep::worker::collective::shm {

// Touches the memory of its arguments only. Used by the thread that runs the
// operations.
class Exchanger {
 public:
  // `slot_bytes` are in each slot of a rank, the same on all ranks.
  Exchanger(int rank, int size, size_t slot_bytes)
      : rank_(rank), size_(size), slot_bytes_(slot_bytes) {}

  // Begins with `operation`, an all-to-all that passed its checks.
  void Begin(const Operation& operation);
  uint64_t blocks() const { return blocks_; }
  // The elements in `block` of a part of `count`: nearly equal shares.
  Range ShareOf(size_t count, uint64_t block) const;

  // Fills this rank's slot for `block`.
  void Give(const Operation& operation, uint64_t block, unsigned char* slot,
            StorePolicy* store_policy) const;
  // Takes this rank's share out of the slot of `source`. Whatever a peer wrote
  // into the slot, nothing outside of it is read.
  void Take(const Operation& operation, uint64_t block, int source,
            const unsigned char* slot) const;

 private:
  // Of the places at the beginning of a slot.
  size_t TableBytes() const;

  const int rank_;
  const int size_;
  const size_t slot_bytes_;
  uint64_t blocks_ = 0;
};

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_EXCHANGER_H_
