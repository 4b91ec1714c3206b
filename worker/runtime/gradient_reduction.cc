#include "worker/runtime/gradient_reduction.h"

#include <algorithm>
#include <utility>

#include "worker/runtime/peer_lost.h"

namespace lockstep::worker::runtime {

GradientReduction::GradientReduction(collective::Communicator* communicator,
                                     Progress* progress,
                                     std::unique_ptr<GradientBuckets> buckets,
                                     Duration operation_timeout)
    : operation_timeout_(operation_timeout),
      buckets_(std::move(buckets)),
      progress_(progress) {
  if (communicator != nullptr) Bind(communicator);
}

void GradientReduction::Bind(collective::Communicator* communicator) {
  communicator_ = communicator;
  inline_ = communicator->progress() == collective::ProgressMode::kInline;
}

void GradientReduction::Unbind() {
  works_.clear();
  communicator_ = nullptr;
}

Status GradientReduction::Rearrange(std::vector<uint32_t> order) {
  LOCKSTEP_RETURN_IF_ERROR(buckets_->Rearrange(std::move(order)));
  return device() != nullptr ? device()->Fit() : OkStatus();
}

void GradientReduction::BeginStep(int64_t step) {
  step_ = step;
  buckets_->BeginStep();
  shard_ = 0;
  finite_ = true;
  started_ = 0;
}

Status GradientReduction::CheckBound() const {
  if (communicator_ != nullptr) return OkStatus();
  return FailedPrecondition(
      "this rank does not train with the others yet: call Recover first");
}

Status GradientReduction::EndShard() {
  return FailedPrecondition("step {}: this rank has one shard", step_);
}

Status GradientReduction::AtStep(const Status& status) const {
  return Annotate(MarkPeerLost(status), fmt::format("step {}", step_));
}

Status GradientReduction::Start(
    const collective::Operation& operation,
    std::vector<std::unique_ptr<collective::Work>>* works) {
  StatusOr<std::unique_ptr<collective::Work>> work =
      communicator_->Start(operation);
  if (!work.ok()) return AtStep(work.status());
  progress_->CountCollective(operation.slice.count *
                             SizeOf(operation.slice.type));
  works->push_back(*std::move(work));
  return OkStatus();
}

// Moves on what is under way, where no thread does.
void GradientReduction::PollInline() {
  if (!inline_) return;
  for (const std::unique_ptr<collective::Work>& work : works_)
    (void)work->Poll();
}

Status GradientReduction::Advance() {
  if (!IsUnderWay()) return OkStatus();
  if (!inline_) return StartFull();
  const MonoTime began = MonotonicNow();
  LOCKSTEP_RETURN_IF_ERROR(StartFull());
  PollInline();
  progress_->CountInline(MonotonicNow() - began);
  return OkStatus();
}

Status GradientReduction::StartTailAlone() {
  return Start({collective::CollectiveKind::kAllReduce, buckets_->tail().slice},
               &works_);
}

Status GradientReduction::WaitFor(
    std::vector<std::unique_ptr<collective::Work>>* works, MonoTime arrived) {
  const MonoTime deadline = DeadlineAfter(arrived);
  Status first;
  for (const std::unique_ptr<collective::Work>& work : *works) {
    Status status = work->Wait(deadline);
    if (first.ok()) first = std::move(status);
    if (const auto ran = work->ran(); ran && ran->began < arrived) {
      hidden_.Add(ran->began, std::min(ran->ended, arrived));
    }
  }
  works->clear();
  return first.ok() ? first : AtStep(first);
}

// Where progress is inline: this rank's part of all of them before it waits for
// the first.
Status GradientReduction::WaitAll(MonoTime arrived) {
  PollInline();
  return WaitFor(&works_, arrived);
}

Status CheckLastShard(size_t shard, const Membership& membership) {
  const size_t own = membership.own_shards().size();
  if (shard + 1 == own) return OkStatus();
  return InvalidArgument(
      "{} of this rank's {} shards are complete: call NextShard between them",
      shard + 1, own);
}

}  // namespace lockstep::worker::runtime
