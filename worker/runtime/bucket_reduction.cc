#include "worker/runtime/bucket_reduction.h"

#include <cmath>
#include <cstring>
#include <utility>

namespace lockstep::worker::runtime {

BucketReduction::BucketReduction(collective::Communicator* communicator,
                                 Progress* progress,
                                 std::unique_ptr<GradientBuckets> buckets,
                                 collective::Stream stream,
                                 Duration operation_timeout,
                                 const Membership& membership)
    : GradientReduction(communicator, progress, std::move(buckets),
                        operation_timeout),
      device_(buckets_->memory().on_device()
                  ? std::make_unique<DeviceGradients>(communicator,
                                                      buckets_.get(), stream)
                  : nullptr),
      before_(buckets_.get(), stream) {
  membership_ = membership;
}

Status BucketReduction::Allocate(bool with_norm) {
  with_norm_ = with_norm;
  LOCKSTEP_RETURN_IF_ERROR(AllocateNorm());
  if (device_ != nullptr) LOCKSTEP_RETURN_IF_ERROR(device_->Fit());
  works_.reserve(buckets_->buckets());
  return buckets_->memory().for_shards() ? before_.Allocate(communicator_)
                                         : OkStatus();
}

Status BucketReduction::AllocateNorm() {
  if (!with_norm_) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(norm_, communicator_->Allocate(sizeof(double)));
  return OkStatus();
}

void BucketReduction::Unbind() {
  if (device_ != nullptr) device_->Unbind();
  before_.Unbind();
  GradientReduction::Unbind();
}

Status BucketReduction::Rebind(collective::Communicator* communicator,
                               const Membership& membership) {
  Bind(communicator);
  if (buckets_->memory().for_shards()) membership_ = membership;
  LOCKSTEP_RETURN_IF_ERROR(buckets_->Rebind(communicator));
  if (device_ != nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(device_->Rebind(communicator));
  }
  LOCKSTEP_RETURN_IF_ERROR(before_.Rebind(communicator));
  return AllocateNorm();
}

void BucketReduction::BeginStep(int64_t step) {
  GradientReduction::BeginStep(step);
  before_.BeginStep();
  if (device_ != nullptr) device_->BeginStep();
}

// Whether gradients on a device are finite is seen in the sum with the last
// shard.
Status BucketReduction::EndShard() {
  if (IsLastShard()) return GradientReduction::EndShard();
  if (device_ == nullptr) {
    for (size_t b = 0; b < buckets_->buckets(); ++b) buckets_->Seal(b);
    finite_ = finite_ && !buckets_->states().nonfinite();
  }
  LOCKSTEP_RETURN_IF_ERROR(AtStep(before_.AddShard()));
  buckets_->BeginStep();
  ++shard_;
  return OkStatus();
}

// In order, so that all ranks start the same; the one with the tail only by
// StartTail.
Status BucketReduction::StartFull() {
  while (Starts()) {
    const size_t bucket = started_;
    if (device_ == nullptr) buckets_->Seal(bucket);
    LOCKSTEP_RETURN_IF_ERROR(AtStep(before_.AddTo(bucket)));
    if (device_ != nullptr) {
      LOCKSTEP_RETURN_IF_ERROR(AtStep(device_->StartLook(bucket)));
    }
    LOCKSTEP_RETURN_IF_ERROR(
        Start({collective::CollectiveKind::kAllReduce, buckets_->slice(bucket)},
              &works_));
    started_ = bucket + 1;
  }
  return OkStatus();
}

StatusOr<bool> BucketReduction::StartRest() {
  LOCKSTEP_RETURN_IF_ERROR(CheckLastShard(shard_, membership_));
  LOCKSTEP_RETURN_IF_ERROR(StartFull());
  if (device_ == nullptr) {
    if (!buckets_->memory().tail_apart()) buckets_->Seal(started_);
    return finite_ && before_.finite() && !buckets_->states().nonfinite();
  }
  StatusOr<bool> finite = device_->AllFinite(
      MonotonicNow() + collective::kStreamPatience * operation_timeout_);
  if (!finite.ok()) return AtStep(finite.status());
  return finite;
}

Status BucketReduction::StartTail() {
  if (buckets_->memory().tail_apart()) return StartTailAlone();
  return Start(
      {collective::CollectiveKind::kAllReduce, buckets_->slice(started_)},
      &works_);
}

StatusOr<double> BucketReduction::SquaresOfPart(MonoTime deadline) {
  const int rank = communicator_->rank();
  const int size = communicator_->size();
  if (device_ == nullptr)
    return runtime::SquaresOfPart(buckets_.get(), rank, size);
  StatusOr<double> squares = device_->SquaresOfPart(rank, size, deadline);
  if (!squares.ok()) return AtStep(squares.status());
  return squares;
}

// Each rank adds up the squares of its part: one number is all that is sent.
StatusOr<double> BucketReduction::Norm(MonoTime arrived) {
  LOCKSTEP_ASSIGN_OR_RETURN(const double part,
                            SquaresOfPart(DeadlineAfter(arrived)));
  std::memcpy(norm_->data, &part, sizeof(part));
  LOCKSTEP_RETURN_IF_ERROR(
      Start({collective::CollectiveKind::kAllReduce,
             {norm_, 0, 1, collective::DataType::kFloat64}},
            &works_));
  LOCKSTEP_RETURN_IF_ERROR(WaitAll(arrived));
  double squares = 0;
  std::memcpy(&squares, norm_->data, sizeof(squares));
  return std::sqrt(squares);
}

}  // namespace lockstep::worker::runtime
