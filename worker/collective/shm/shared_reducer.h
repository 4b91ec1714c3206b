// Runs operations on memory that all ranks map, once all have arrived: small
// ones from the slots of all ranks, large ones in place, chunk by chunk
// (layout.h).
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_SHARED_REDUCER_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_SHARED_REDUCER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "worker/collective/communicator.h"
#include "worker/collective/reduce.h"
#include "worker/collective/shm/chunks.h"
#include "worker/collective/shm/failure_detector.h"
#include "worker/collective/shm/ranks.h"
#include "worker/collective/shm/started.h"
#include "worker/collective/shm/waiter.h"

namespace lockstep::worker::collective::shm {

// Used by the thread that runs the operations.
class SharedReducer {
 public:
  // All are borrowed.
  SharedReducer(const Ranks* ranks, const FailureDetector* detector,
                Waiter* waiter);

  // Computes this rank's result of a small operation with data, which lies in
  // slot `slot` of every rank, into `local`: the beginning of its slice.
  void RunSmall(const Operation& operation, uint32_t slot,
                unsigned char* local);

  // Begins with the chunks of a large operation, the one at the front.
  void Begin(const Operation& operation);
  // Works on its chunks as long as any are left. `started` says where each
  // rank's slice lies. True once all chunks are done; else the waiter knows
  // what is missing, or the communicator is broken.
  bool Run(const Operation& operation, std::span<const Started> started);

 private:
  void RunChunk(const Operation& operation, std::span<const Started> started,
                const Chunk& chunk);

  const Ranks& ranks_;
  const FailureDetector& detector_;
  Waiter& waiter_;
  const InstructionSet instructions_;
  Chunks chunks_;
  bool no_more_chunks_ = false;
  std::vector<const void*> ins_;  // by rank
  std::vector<void*> outs_;
};

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_SHARED_REDUCER_H_
