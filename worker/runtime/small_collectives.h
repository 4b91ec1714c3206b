// Collectives for small data between the steps: sums of an evaluation, the
// checkpoint to restore. All ranks make the same calls in the same order.
//
// Data is copied through one buffer of 64 KiB, in as many operations as it
// takes. Errors that are a peer's fault have the reason PEER_LOST.
#ifndef LOCKSTEP_WORKER_RUNTIME_SMALL_COLLECTIVES_H_
#define LOCKSTEP_WORKER_RUNTIME_SMALL_COLLECTIVES_H_

#include <span>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/runtime/progress.h"

namespace lockstep::worker::runtime {

class SmallCollectives {
 public:
  // Both are borrowed and outlive this.
  SmallCollectives(collective::Communicator* communicator, Progress* progress,
                   Duration operation_timeout)
      : communicator_(communicator),
        progress_(progress),
        operation_timeout_(operation_timeout) {}

  // values[i] becomes the sum over all ranks, the same bits everywhere.
  Status AllReduceSum(std::span<double> values);
  // Every rank ends with rank 0's bytes. InvalidArgument, on every rank, when
  // they are more than 64 MiB.
  Status Broadcast(std::string* bytes);
  Status Barrier();

 private:
  Status Prepare();
  Status RunOne(const collective::Operation& operation);

  collective::Communicator* const communicator_;
  Progress* const progress_;
  const Duration operation_timeout_;
  const collective::Buffer* scratch_ = nullptr;  // The communicator's.
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_SMALL_COLLECTIVES_H_
