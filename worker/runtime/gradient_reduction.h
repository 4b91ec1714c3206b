// The reductions of one step: starts the buckets as they fill, in order, and
// waits for them. How a bucket is reduced is the derived classes' affair:
// bucket_reduction.h, and for elastic jobs shard_reduction.h.
//
// Where the communicator makes progress inline, this moves the reductions on at
// each gradient, and counts the time.
#ifndef LOCKSTEP_WORKER_RUNTIME_GRADIENT_REDUCTION_H_
#define LOCKSTEP_WORKER_RUNTIME_GRADIENT_REDUCTION_H_

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
#include "worker/runtime/membership.h"
#include "worker/runtime/progress.h"

namespace lockstep::worker::runtime {

// Not thread-safe: the training loop's thread. Errors name the step.
class GradientReduction {
 public:
  virtual ~GradientReduction() = default;
  GradientReduction(const GradientReduction&) = delete;
  GradientReduction& operator=(const GradientReduction&) = delete;

  // Once; `with_norm`: Norm will be called.
  virtual Status Allocate(bool with_norm) = 0;
  // A recovery: leaves the communicator; then goes on with another one.
  virtual void Unbind();
  virtual Status Rebind(collective::Communicator* communicator,
                        const Membership& membership) = 0;
  GradientBuckets* buckets() { return buckets_.get(); }
  // Null where gradients lie on the host.
  virtual DeviceGradients* device() { return nullptr; }

  // Between steps: gradients change place, and become zero.
  Status Rearrange(std::vector<uint32_t> order);

  virtual void BeginStep(int64_t step);
  // FailedPrecondition: it has no communicator, before Rebind.
  Status CheckBound() const;
  // A gradient is complete: starts the buckets that are full now, as far as
  // those before them have started, and moves on the rest.
  Status Advance();
  // After GradientBuckets::SetAllReady, in a step with several shards: the
  // gradients of a shard are complete, and those of the next one follow.
  virtual Status EndShard();
  // After GradientBuckets::SetAllReady: starts all buckets but that with the
  // tail. Whether all of this rank's gradients are finite: on a device only
  // known once they are there.
  virtual StatusOr<bool> StartRest() = 0;
  // Starts what carries the tail, which is written: the last bucket, or the
  // tail alone where that is apart.
  virtual Status StartTail() = 0;
  Status StartTailAlone();
  // Waits for all that was started; from `arrived` on this rank has had nothing
  // else to do.
  virtual Status WaitAll(MonoTime arrived);
  // The norm of all gradients, which all ranks measure together.
  virtual StatusOr<double> Norm(MonoTime arrived) = 0;
  // For how long some bucket of the step ran before all that was left was to
  // wait for them; none where progress is inline. Starts anew.
  Duration TakeHidden() { return hidden_.Take(); }

 protected:
  // `communicator` and `progress` are borrowed.
  GradientReduction(collective::Communicator* communicator, Progress* progress,
                    std::unique_ptr<GradientBuckets> buckets,
                    Duration operation_timeout);

  bool IsLastShard() const {
    return shard_ + 1 == membership_.own_shards().size();
  }
  // Starts what is complete and not started.
  virtual Status StartFull() = 0;
  // Something was started, or can be.
  virtual bool IsUnderWay() const = 0;

  // `status`, an error, as one of this step and perhaps of a lost peer.
  Status AtStep(const Status& status) const;
  Status Start(const collective::Operation& operation,
               std::vector<std::unique_ptr<collective::Work>>* works);
  // Waits for them all, notes when they ran, and returns the first error.
  Status WaitFor(std::vector<std::unique_ptr<collective::Work>>* works,
                 MonoTime arrived);
  virtual void PollInline();
  void Bind(collective::Communicator* communicator);
  MonoTime DeadlineAfter(MonoTime arrived) const {
    return arrived + operation_timeout_;
  }

  const Duration operation_timeout_;
  const std::unique_ptr<GradientBuckets> buckets_;
  // Null: none yet, or no longer.
  collective::Communicator* communicator_ = nullptr;
  bool inline_ = false;  // Its progress is.
  // Of an elastic job: the communicator's. Else that of one rank.
  Membership membership_;
  // State of the step under way.
  size_t shard_ = 0;    // of the own ones
  bool finite_ = true;  // All gradients of the shards before.
  size_t started_ = 0;  // buckets, from the first
  std::vector<std::unique_ptr<collective::Work>> works_;

 private:
  Progress* const progress_;
  int64_t step_ = 0;
  BusyTime hidden_;
};

// At the end of a step, in shard number `shard` of the member's own ones.
// InvalidArgument: it is not the last one.
Status CheckLastShard(size_t shard, const Membership& membership);

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_GRADIENT_REDUCTION_H_
