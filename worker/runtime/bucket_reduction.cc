#include "worker/runtime/bucket_reduction.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "worker/runtime/peer_lost.h"

namespace lockstep::worker::runtime {

BucketReduction::BucketReduction(collective::Communicator* communicator,
                                 Progress* progress,
                                 std::unique_ptr<GradientBuckets> buckets,
                                 collective::Stream stream,
                                 Duration operation_timeout)
    : communicator_(communicator),
      progress_(progress),
      inline_(communicator->progress() == collective::ProgressMode::kInline),
      operation_timeout_(operation_timeout),
      buckets_(std::move(buckets)),
      device_(buckets_->on_device() ? std::make_unique<DeviceGradients>(
                                          communicator_, buckets_.get(), stream)
                                    : nullptr) {}

Status BucketReduction::Allocate(bool with_norm) {
  if (with_norm) {
    LOCKSTEP_ASSIGN_OR_RETURN(norm_, communicator_->Allocate(sizeof(double)));
  }
  if (device_ != nullptr) LOCKSTEP_RETURN_IF_ERROR(device_->Fit());
  works_.reserve(buckets_->buckets());
  return OkStatus();
}

void BucketReduction::Unbind() {
  works_.clear();
  communicator_ = nullptr;
}

Status BucketReduction::Rebind(collective::Communicator* communicator) {
  communicator_ = communicator;
  inline_ = communicator->progress() == collective::ProgressMode::kInline;
  LOCKSTEP_RETURN_IF_ERROR(buckets_->Rebind(communicator));
  return Allocate(norm_ != nullptr);
}

void BucketReduction::BeginStep(int64_t step) {
  step_ = step;
  buckets_->BeginStep();
  if (device_ != nullptr) device_->BeginStep();
  started_ = 0;
}

Status BucketReduction::AtStep(const Status& status) const {
  return Annotate(MarkPeerLost(status), fmt::format("step {}", step_));
}

Status BucketReduction::Start(const collective::Operation& operation) {
  StatusOr<std::unique_ptr<collective::Work>> work =
      communicator_->Start(operation);
  if (!work.ok()) return AtStep(work.status());
  progress_->CountCollective(operation.slice.count *
                             SizeOf(operation.slice.type));
  works_.push_back(*std::move(work));
  return OkStatus();
}

// Moves on what is under way, where no thread does.
void BucketReduction::PollInline() {
  if (!inline_) return;
  for (const std::unique_ptr<collective::Work>& work : works_)
    (void)work->Poll();
}

// In order, so that all ranks start the same; the one with the tail only by
// StartTail.
Status BucketReduction::StartFull() {
  while (Starts()) {
    if (device_ != nullptr) {
      LOCKSTEP_RETURN_IF_ERROR(AtStep(device_->StartLook(started_)));
    } else {
      buckets_->Seal(started_);
    }
    LOCKSTEP_RETURN_IF_ERROR(Start(
        {collective::CollectiveKind::kAllReduce, buckets_->slice(started_)}));
    ++started_;
  }
  return OkStatus();
}

Status BucketReduction::Advance() {
  if (works_.empty() && !Starts()) return OkStatus();
  if (!inline_) return StartFull();
  const MonoTime began = MonotonicNow();
  LOCKSTEP_RETURN_IF_ERROR(StartFull());
  PollInline();
  progress_->CountInline(MonotonicNow() - began);
  return OkStatus();
}

StatusOr<bool> BucketReduction::StartRest() {
  LOCKSTEP_RETURN_IF_ERROR(StartFull());
  if (device_ == nullptr) {
    buckets_->Seal(started_);
    return !buckets_->states().nonfinite();
  }
  StatusOr<bool> finite = device_->AllFinite(
      MonotonicNow() + collective::kStreamPatience * operation_timeout_);
  if (!finite.ok()) return AtStep(finite.status());
  return finite;
}

Status BucketReduction::StartTail() {
  if (device_ != nullptr) return StartTailAlone();
  return Start(
      {collective::CollectiveKind::kAllReduce, buckets_->slice(started_)});
}

Status BucketReduction::StartTailAlone() {
  return Start(
      {collective::CollectiveKind::kAllReduce, buckets_->tail_slice()});
}

Status BucketReduction::WaitAll(MonoTime arrived) {
  const MonoTime deadline = arrived + operation_timeout_;
  // Where progress is inline: this rank's part of all of them before it waits
  // for the first.
  PollInline();
  Status first;
  for (const std::unique_ptr<collective::Work>& work : works_) {
    Status status = work->Wait(deadline);
    if (first.ok()) first = std::move(status);
    if (const auto ran = work->ran(); ran && ran->began < arrived) {
      hidden_.Add(ran->began, std::min(ran->ended, arrived));
    }
  }
  works_.clear();
  return first.ok() ? first : AtStep(first);
}

StatusOr<double> BucketReduction::SquaresOfPart(MonoTime deadline) {
  const int rank = communicator_->rank();
  const int size = communicator_->size();
  if (device_ == nullptr) return buckets_->SquaresOfPart(rank, size);
  StatusOr<double> squares = device_->SquaresOfPart(rank, size, deadline);
  if (!squares.ok()) return AtStep(squares.status());
  return squares;
}

// Each rank adds up the squares of its part: one number is all that is sent.
StatusOr<double> BucketReduction::Norm(MonoTime arrived) {
  LOCKSTEP_ASSIGN_OR_RETURN(const double part,
                            SquaresOfPart(arrived + operation_timeout_));
  std::memcpy(norm_->data, &part, sizeof(part));
  LOCKSTEP_RETURN_IF_ERROR(
      Start({collective::CollectiveKind::kAllReduce,
             {norm_, 0, 1, collective::DataType::kFloat64}}));
  LOCKSTEP_RETURN_IF_ERROR(WaitAll(arrived));
  double squares = 0;
  std::memcpy(&squares, norm_->data, sizeof(squares));
  return std::sqrt(squares);
}

}  // namespace lockstep::worker::runtime
