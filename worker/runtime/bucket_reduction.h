// The reductions of one step: starts the buckets as they fill, in order, and
// waits for them.
//
// Where the communicator makes progress inline, this moves the reductions on at
// each gradient, and counts the time.
#ifndef LOCKSTEP_WORKER_RUNTIME_BUCKET_REDUCTION_H_
#define LOCKSTEP_WORKER_RUNTIME_BUCKET_REDUCTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/runtime/busy_time.h"
#include "worker/runtime/device_gradients.h"
#include "worker/runtime/gradient_buckets.h"
#include "worker/runtime/progress.h"

namespace lockstep::worker::runtime {

// Not thread-safe: the training loop's thread. Errors name the step.
class BucketReduction {
 public:
  // `communicator` and `progress` are borrowed. `stream`: the device's, where
  // gradients lie there.
  BucketReduction(collective::Communicator* communicator, Progress* progress,
                  std::unique_ptr<GradientBuckets> buckets,
                  collective::Stream stream, Duration operation_timeout);

  // Once; `with_norm`: Norm will be called.
  Status Allocate(bool with_norm);
  // A recovery, on the host: leaves the communicator, which is aborted; then
  // goes on with another one, after GradientBuckets::Rebind.
  void Unbind();
  Status Rebind(collective::Communicator* communicator);
  GradientBuckets* buckets() { return buckets_.get(); }
  const GradientBuckets* buckets() const { return buckets_.get(); }
  // Null where gradients lie on the host.
  DeviceGradients* device() { return device_.get(); }

  void BeginStep(int64_t step);
  // A gradient is complete: starts the buckets that are full now, as far as
  // those before them have started, and moves on the rest.
  Status Advance();
  // After GradientBuckets::SetAllReady: starts all buckets but that with the
  // tail. Whether all of this rank's gradients are finite: on a device only
  // known once they are there.
  StatusOr<bool> StartRest();
  // Starts what carries the tail, which is written: the last bucket, and on a
  // device the tail alone.
  Status StartTail();
  Status StartTailAlone();
  // Waits for all that was started; from `arrived` on this rank has had nothing
  // else to do.
  Status WaitAll(MonoTime arrived);
  // The norm of all gradients, which all ranks measure together.
  StatusOr<double> Norm(MonoTime arrived);
  // For how long some bucket of the step ran before all that was left was to
  // wait for them; none where progress is inline. Starts anew.
  Duration TakeHidden() { return hidden_.Take(); }

 private:
  // The next bucket needs nothing more.
  bool Starts() const {
    const size_t alone = buckets_->buckets() - (device_ != nullptr ? 0 : 1);
    return started_ < alone && buckets_->states().full(started_);
  }
  // `status`, an error, as one of this step and perhaps of a lost peer.
  Status AtStep(const Status& status) const;
  Status Start(const collective::Operation& operation);
  Status StartFull();
  void PollInline();
  StatusOr<double> SquaresOfPart(MonoTime deadline);

  collective::Communicator* communicator_;
  Progress* const progress_;
  bool inline_;
  const Duration operation_timeout_;
  const std::unique_ptr<GradientBuckets> buckets_;
  const std::unique_ptr<DeviceGradients> device_;
  const collective::Buffer* norm_ =
      nullptr;  // a number, in the communicator's memory

  // State of the step under way.
  int64_t step_ = 0;
  size_t started_ = 0;  // buckets, from the first
  std::vector<std::unique_ptr<collective::Work>> works_;
  BusyTime hidden_;
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_BUCKET_REDUCTION_H_
