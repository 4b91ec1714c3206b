// Work of a step on gradients that lie on a device, where the host can neither
// look nor write: whether they are finite, their norm, zeroing them.
//
// A look is a sum of squares (communicator.h) of a bucket before it is reduced.
// It runs in parallel with the reductions of other buckets, so that it ends
// when this rank's own gradients are there, however late the peers are: the
// time at which a rank comes to the tail is its own.
//
// Thread-compatible; for the reducer's thread.
#ifndef LOCKSTEP_WORKER_RUNTIME_DEVICE_GRADIENTS_H_
#define LOCKSTEP_WORKER_RUNTIME_DEVICE_GRADIENTS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/runtime/gradient_buckets.h"

namespace lockstep::worker::runtime {

class DeviceGradients {
 public:
  // Borrows both. `stream` is where gradients are made.
  // REQUIRES: communicator->device_memory() is not null.
  DeviceGradients(collective::Communicator* communicator,
                  const GradientBuckets* buckets, collective::Stream stream)
      : communicator_(communicator), buckets_(buckets), stream_(stream) {}

  // Call it before the first step, and after the buckets were laid out anew:
  // it clears them.
  Status Fit();
  // A recovery: lets the communicator go, after an abort; then goes on with
  // another one, in which the buckets are already.
  void Unbind();
  Status Rebind(collective::Communicator* communicator);
  // All gradients become zero in turn with the stream; without a communicator,
  // with Rebind. An error is returned by the next StartLook.
  void Zero();
  // Starts the look at a bucket whose gradients will be complete once the
  // stream has come as far as it has been given. Operations that are started
  // later come after it.
  Status StartLook(size_t bucket);
  void BeginStep() { finite_ = true; }
  // Waits for all looks. True: all elements of this step's gradients are
  // finite.
  StatusOr<bool> AllFinite(MonoTime deadline);
  // After all is reduced: sum of the squares of rank `rank`'s part of all
  // gradients; those of all ranks add up to that of the whole.
  StatusOr<double> SquaresOfPart(int rank, int size, MonoTime deadline);

 private:
  Status StartSquares(const collective::Slice& of);

  collective::Communicator* communicator_;  // Null: none, before Rebind.
  const GradientBuckets* const buckets_;
  const collective::Stream stream_;
  const collective::Buffer* sums_ =
      nullptr;  // One a look, in the order of looks_.
  std::vector<std::unique_ptr<collective::Work>> looks_;
  bool finite_ = true;
  Status status_;
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_DEVICE_GRADIENTS_H_
