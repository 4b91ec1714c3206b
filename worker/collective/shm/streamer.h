// Runs operations in which some rank's slice is in private memory: streams
// them, block by block, through the stages of all segments (layout.h).
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_STREAMER_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_STREAMER_H_

#include <cstdint>
#include <vector>

#include "worker/collective/communicator.h"
#include "worker/collective/reduce.h"
#include "worker/collective/shm/chunks.h"
#include "worker/collective/shm/exchanger.h"
#include "worker/collective/shm/failure_detector.h"
#include "worker/collective/shm/ranks.h"
#include "worker/collective/shm/store_policy.h"
#include "worker/collective/shm/waiter.h"

namespace lockstep::worker::collective::shm {

// Used by the thread that runs the operations.
class Streamer {
 public:
  // All are borrowed. `spins` as the waiter's; the same on all ranks.
  Streamer(const Ranks* ranks, const FailureDetector* detector, Waiter* waiter,
           bool spins);

  // Begins with the operation at the front. The first one of several blocks
  // maps the stages of all ranks that it uses, so that no later step pays for
  // it.
  void Begin(const Operation& operation);
  // Moves the operation on as far as the others allow; `local` is the beginning
  // of this rank's slice. True once it is done; else the waiter knows what is
  // missing, or the communicator is broken.
  bool Run(const Operation& operation, unsigned char* local);
  // The operation is done: its blocks count as used.
  void End();

 private:
  // Each handles one block; false: the waiter knows what is missing.
  bool Give(const Operation& operation, const unsigned char* local);
  bool Reduce(const Operation& operation, unsigned char* local);
  bool Take(const Operation& operation, unsigned char* local);
  // Of every rank.
  struct Stage {
    size_t place = 0;  // in a segment
    Blocks::Shape shape;
    bool mapped = false;
  };
  void Map(Stage* stage) const;
  // Blocks of the operation at the front.
  uint64_t Count() const {
    return stage_ == &exchanged_ ? exchanger_.blocks() : blocks_.count();
  }
  // The slot of a block in the stage of `rank`, and its piece of `part` there.
  unsigned char* SlotOf(int rank, uint64_t block) const;
  unsigned char* Staged(int rank, uint64_t block, int part) const {
    return SlotOf(rank, block) + part * stage_->shape.piece_bytes;
  }
  bool AllHave(Need::Kind kind, uint64_t number);

  const Ranks& ranks_;
  const FailureDetector& detector_;
  Waiter& waiter_;
  const InstructionSet instructions_;
  Stage streamed_;
  Stage exchanged_;            // of all-to-alls
  Stage* stage_ = &streamed_;  // of the operation at the front
  Exchanger exchanger_;
  Blocks blocks_;
  // Blocks of this operation that this rank has given, reduced, taken.
  uint64_t given_ = 0;
  uint64_t reduced_ = 0;
  uint64_t taken_ = 0;
  uint64_t before_ = 0;  // blocks of earlier operations
  StorePolicy store_policy_;
  std::vector<const void*> ins_;  // by rank
};

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_STREAMER_H_
