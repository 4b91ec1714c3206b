// The layout of shared memory, and why reading it is safe.
//
// Each rank owns one segment (segment.h): a Control at its start, a stage, one
// more stage for all-to-alls, and its arena, from which it allocates buffers.
// Every rank maps the segments of all.
//
// Operations are numbered from 0, the same on every rank. For operation s:
//
// 1. Arrival. Rank r fills ring[s % kRing] of its own Control (and, for a
//    small operation, copies its data into a slot of `small`), then stores
//    sequence = s + 1 (release). A peer that loads s + 1 (acquire) sees all of
//    it, and everything that r wrote to its buffers before. It compares what
//    r started with what it started itself: a mismatch is found before
//    anything is reduced. Every rank waits for every other's arrival.
// 2a. Small. Every rank computes its own result from the slots of all; the
//    operation has ended for it: its buffer was never shared.
// 2b. Shared. The operation is cut into chunks. A rank that has arrived takes
//    the next one (fetch_add of rank 0's `claimed`), so each chunk has one
//    worker, which alone reads and writes it, in all ranks' buffers. A rank
//    that finds no more chunks adds the number that it did to rank 0's
//    `completed` (acq_rel). The operation has ended for a rank once it loads
//    all chunks (acquire): all additions are one release sequence, so the
//    writes of every worker are visible. A rank that is busy elsewhere delays
//    no other.
// 2c. Streamed, where a rank's slice is private memory: the operation is cut
//    into blocks, numbered on over all operations; block g of a rank goes
//    through slot g % slots of its stage. Each rank in turn
//      gives    copies what others need of its block into its slot,
//               stores given = g + 1 (release);
//      reduces  once all have given (acquire): its own piece, from its memory
//               and the others' slots, into its memory and its slot, stores
//               reduced = g + 1 (release);
//      takes    once all have reduced (acquire): the others' pieces out of
//               their slots, stores taken = g + 1 (release).
//    Of an all-to-all, a rank gives a share of each part and takes those that
//    are for it (exchanger.h), from its memory into its memory, through a stage
//    of its own with slots of its own. The blocks' numbers go on over both, so
//    an earlier block in the same slot of one stage is at least as old as
//    below. It gives block g only once all have taken g - slots (acquire): no
//    rank reads that slot any more. The operation has ended for a rank when it
//    has taken the last block: no other rank touches its memory. A rank that
//    waits does so for the oldest of its blocks, so the rank with the oldest
//    block of all never waits.
// 3. Reuse. `done` counts the operations that ended for a rank, or rather that
//    it will never look at again (release). Rank r overwrites the ring's entry
//    of operation s (and its claims, and the small slot) only when it has
//    loaded done > s (acquire) from every rank. Claims made late, by a rank
//    that finds all chunks taken, thus never hit a later operation.
//
// Sleeping. A rank that finds nothing to do stores into `waiting` a code for
// what it waits for (wait_code below), fences (seq_cst), looks once more, and
// sleeps by futex while the word has that value. A rank that makes such a
// condition true stores it, fences (seq_cst), and for each rank whose word has
// its code sets it to 0 and wakes it. One of the two fences is first: either
// the sleeper sees the condition, or the waker sees the code.
//
// Trust. Peers hold the generation's key, but may be broken. A value that is
// read here and then used as a place is copied once and checked against the
// segment. A wrong number elsewhere makes wrong sums or an error, never an
// access outside. Segments are sealed against shrinking: no access can raise
// SIGBUS.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_LAYOUT_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "worker/collective/page_size.h"

namespace lockstep::worker::collective::shm {

inline constexpr int kMaxRanks = 128;
// Operations that a rank may be ahead of the slowest.
inline constexpr uint64_t kRing = 64;
// The same for small ones; few, so that they stay in the L1 cache.
inline constexpr uint64_t kSmallSlots = 8;
inline constexpr size_t kSmallBytes = 4096;
inline constexpr size_t kExitMessageBytes = 400;
inline constexpr size_t kCacheLine = 64;
// A segment is the Control, the stages, and the arena.
inline constexpr size_t kStagePlace = kHugePage;
inline constexpr size_t kStageBytes = size_t{4} << 20;
inline constexpr size_t kExchangePlace = kStagePlace + kStageBytes;
inline constexpr size_t kArenaPlace = kExchangePlace + kStageBytes;

template <typename T>
using Shared = std::atomic<T>;
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

// One operation that a rank started.
struct alignas(kCacheLine) Entry {
  Shared<uint64_t> sequence;  // number + 1; 0: none yet
  Shared<uint64_t> what;      // as Started
  Shared<uint64_t> count;
  Shared<uint64_t> part_of_what;
  Shared<uint64_t> part_of_count;
  Shared<uint64_t> place;  // in the segment, or an address when private

  // On a line of their own: others write here while the line above is polled.
  // The first two are used in rank 0's Control only.
  alignas(kCacheLine) Shared<uint32_t> claimed;
  Shared<uint32_t> completed;
  Shared<uint32_t> works;  // 1: this rank takes chunks; for messages only
};

inline constexpr size_t kProcessorWords = 16;

struct Control {
  Entry ring[kRing];
  alignas(kCacheLine) Shared<uint64_t> done;
  // Blocks of the stage.
  alignas(kCacheLine) Shared<uint64_t> given;
  alignas(kCacheLine) Shared<uint64_t> reduced;
  alignas(kCacheLine) Shared<uint64_t> taken;
  // The futex; see wait_code.
  alignas(kCacheLine) Shared<uint32_t> waiting;
  // The processor on which the rank last noted that it ran; a hint.
  Shared<uint32_t> processor;
  // 1 once this rank has mapped all others, while forming.
  alignas(kCacheLine) Shared<uint32_t> ready;
  // The processors that the rank may run on.
  Shared<uint64_t> processors[kProcessorWords];
  // 1 + the StatusCode that broke the rank, and its sentence, written before.
  Shared<uint32_t> ended;
  char exit_message[kExitMessageBytes];
  alignas(kCacheLine) unsigned char small[kSmallSlots][kSmallBytes];
};
static_assert(sizeof(Control) <= kHugePage);

// The condition that a sleeper waits for; never 0.
namespace wait_code {
inline constexpr uint32_t kAwake = 0;
inline constexpr uint32_t Arrival(int rank) { return 1 + rank; }
inline constexpr uint32_t Stage(int rank) { return 1 + kMaxRanks + rank; }
// No rank wakes a sleeper for it: sleep shortly.
inline constexpr uint32_t Done(int rank) { return 1 + 2 * kMaxRanks + rank; }
inline constexpr uint32_t kCompletion = 1 + 3 * kMaxRanks;
}  // namespace wait_code

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_LAYOUT_H_
