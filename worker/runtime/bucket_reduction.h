// Reduces each bucket by an all-reduce of all ranks (gradient_reduction.h).
//
// So does an elastic job over nccl. A member with several shards adds them up
// first, so the order of the sums depends on the members. The tail has memory
// of its own then.
#ifndef LOCKSTEP_WORKER_RUNTIME_BUCKET_REDUCTION_H_
#define LOCKSTEP_WORKER_RUNTIME_BUCKET_REDUCTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/runtime/device_gradients.h"
#include "worker/runtime/gradient_reduction.h"
#include "worker/runtime/membership.h"
#include "worker/runtime/shard_sum.h"

namespace lockstep::worker::runtime {

class BucketReduction final : public GradientReduction {
 public:
  // `stream`: the device's, where gradients lie there. `buckets` that are made
  // for shards: the job is elastic, and `membership` that of the communicator.
  BucketReduction(collective::Communicator* communicator, Progress* progress,
                  std::unique_ptr<GradientBuckets> buckets,
                  collective::Stream stream, Duration operation_timeout,
                  const Membership& membership = {});

  Status Allocate(bool with_norm) override;
  void Unbind() override;
  Status Rebind(collective::Communicator* communicator,
                const Membership& membership) override;
  DeviceGradients* device() override { return device_.get(); }
  void BeginStep(int64_t step) override;
  Status EndShard() override;
  StatusOr<bool> StartRest() override;
  Status StartTail() override;
  StatusOr<double> Norm(MonoTime arrived) override;

 private:
  // The next bucket needs nothing more.
  bool Starts() const {
    const size_t alone =
        buckets_->buckets() - (buckets_->memory().tail_apart() ? 0 : 1);
    return communicator_ != nullptr && IsLastShard() && started_ < alone &&
           buckets_->states().full(started_);
  }
  Status StartFull() override;
  bool IsUnderWay() const override { return !works_.empty() || Starts(); }
  StatusOr<double> SquaresOfPart(MonoTime deadline);
  Status AllocateNorm();

  const std::unique_ptr<DeviceGradients> device_;
  ShardSum before_;  // The shards before the last one.
  bool with_norm_ = false;
  const collective::Buffer* norm_ =
      nullptr;  // a number, in the communicator's memory
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_BUCKET_REDUCTION_H_
