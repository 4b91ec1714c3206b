// How an operation is cut: a rank's contribution, chunks that ranks take, parts
// that ranks own. Pure.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_CHUNKS_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_CHUNKS_H_

#include <cstddef>
#include <cstdint>

#include "worker/collective/communicator.h"

namespace lockstep::worker::collective::shm {

// Elements of a slice.
struct Range {
  size_t first = 0;
  size_t count = 0;
};

// The elements that `rank` contributes to the operation; may be empty.
Range ContributionOf(const Operation& operation, int rank, int size);

// The part of all `count` elements that `rank` reduces. Parts are equal, except
// for the last ones, with borders at multiples of 1,024 elements.
Range PartOf(size_t count, int rank, int size);

struct Chunk {
  // The rank whose part it is in, for kReduceScatter and kAllGather; else 0.
  int part = 0;
  Range range;
};

class Chunks {
 public:
  Chunks() = default;
  // Chunks fit the L2 cache, are small enough that an abort is seen within
  // some 10 us, and large enough to make the cost of taking one negligible.
  Chunks(const Operation& operation, int size);

  uint32_t count() const { return count_; }
  // The chunk that is taken as number `number`. The last elements come first:
  // they were written last, and are still in the cache.
  // REQUIRES: number < count().
  Chunk At(uint32_t number) const;

 private:
  size_t part_elements_ = 0;
  size_t chunk_elements_ = 1;
  uint32_t per_part_ = 0;
  uint32_t count_ = 0;
};

// The blocks that an operation is streamed in. A block has a piece of every
// rank's part. Not of an all-to-all: see exchanger.h.
class Blocks {
 public:
  // How a stage is divided among ranks; the same on all.
  struct Shape {
    size_t piece_bytes = 0;
    size_t slots = 0;
  };
  // `spinning`: ranks run in parallel, so a few slots, which stay in the cache,
  // suffice. Else a rank should get far before it must sleep.
  static Shape ShapeOf(int size, size_t stage_bytes, bool spinning);

  Blocks() = default;
  Blocks(const Operation& operation, int size, const Shape& shape);

  uint64_t count() const { return count_; }
  // The piece of `part` in `block`; empty where the part has ended.
  Range PieceOf(int part, uint64_t block) const;

 private:
  size_t elements_ = 0;
  int size_ = 1;
  bool in_parts_ = false;
  size_t piece_elements_ = 1;
  uint64_t count_ = 0;
};

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_CHUNKS_H_
