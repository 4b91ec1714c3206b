#include "worker/runtime/stepped_reducer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "worker/runtime/gradients.h"
#include "worker/runtime/peer_lost.h"
#include "worker/runtime/step_tail.h"

namespace lockstep {
namespace {

MonoTime Now() { return SystemClock().Now().mono; }

class SteppedReducer final : public Reducer {
 public:
  SteppedReducer(BucketPlan plan, size_t parameters, StepController controller,
                 SteppedReducerOptions options)
      : plan_(std::move(plan)),
        options_(std::move(options)),
        communicator_(options_.communicator),
        progress_(options_.progress),
        controller_(std::move(controller)),
        gradients_(parameters),
        bucket_of_(parameters),
        ready_(parameters),
        missing_(plan_.buckets.size()) {}

  Status Allocate();

  std::span<float> gradient(size_t i) override { return gradients_[i]; }
  size_t parameters() const override { return gradients_.size(); }
  void ZeroGradients() override;

  int64_t step() const override { return controller_.step(); }
  int64_t committed() const override { return controller_.committed(); }
  bool wants_state_hash() const override {
    return controller_.wants_state_hash();
  }

  Status Ready(size_t i) override;
  StatusOr<StepResult> Finish(const StepInputs& inputs) override;
  StatusOr<StepOrders> Commit() override;
  Status Vote(uint64_t id, bool durable) override {
    return controller_.Vote(id, durable);
  }
  const std::optional<CheckpointOrder>& in_flight() const override {
    return controller_.in_flight();
  }
  bool voted() const override { return controller_.voted(); }
  StatusOr<StepOrders> Settle() override;
  StatusOr<CheckpointOrder> BeginCheckpoint() override {
    return controller_.BeginCheckpoint();
  }

 private:
  void NextStep();
  bool Finite(size_t bucket) const;
  Status Start(const Slice& slice, MonoTime now);
  void NoteIdle();
  Duration TakeBusy(MonoTime now);
  Status StartFullBuckets();
  Status WaitAll(MonoTime deadline);
  void Tell(const ControlWords& words, const StepInputs& inputs);
  StatusOr<Verdict> Hear(StepTailSum* sum);
  Status AtStep(const Status& status) const;

  const BucketPlan plan_;
  const SteppedReducerOptions options_;
  Communicator* const communicator_;
  Progress* const progress_;
  StepController controller_;

  std::vector<const Buffer*> buffers_;  // One a bucket; the communicator's.
  std::vector<std::span<float>> gradients_;
  std::vector<size_t> bucket_of_;
  std::span<float> tail_;

  // Of the step under way.
  std::vector<bool> ready_;
  std::vector<size_t> missing_;  // Gradients of a bucket not ready yet.
  size_t started_ = 0;           // Buckets, from the first.
  bool nonfinite_ = false;
  std::vector<std::unique_ptr<Work>> works_;
  Progress::Step counted_;
  // Since when without a break some bucket has been under way; nothing: none
  // is. And how long that was before.
  std::optional<MonoTime> busy_since_;
  Duration busy_{};

  // For which the last step's reduction held this rank up.
  Duration last_wait_{};
  bool told_drain_ = false;
};

Status SteppedReducer::Allocate() {
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    const BucketLayout& bucket = plan_.buckets[b];
    LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* buffer,
                              communicator_->Allocate(bucket.bytes));
    buffers_.push_back(buffer);
    char* data = static_cast<char*>(buffer->data);
    for (const BucketEntry& entry : bucket.entries) {
      // The plan has the last parameter first.
      const size_t parameter = gradients_.size() - 1 - entry.parameter;
      gradients_[parameter] = std::span<float>(
          reinterpret_cast<float*>(data + entry.offset_bytes), entry.count);
      bucket_of_[parameter] = b;
    }
  }
  char* last = static_cast<char*>(buffers_.back()->data);
  tail_ = std::span<float>(
      reinterpret_cast<float*>(last + plan_.control_offset_bytes),
      plan_.control_words);
  NextStep();
  return OkStatus();
}

void SteppedReducer::NextStep() {
  std::fill(ready_.begin(), ready_.end(), false);
  for (size_t b = 0; b < missing_.size(); ++b) {
    missing_[b] = plan_.buckets[b].entries.size();
  }
  started_ = 0;
  nonfinite_ = false;
  progress_->SetStep(controller_.step());
}

void SteppedReducer::ZeroGradients() {
  for (const std::span<float> gradient : gradients_) {
    std::fill(gradient.begin(), gradient.end(), 0.0f);
  }
}

bool SteppedReducer::Finite(size_t bucket) const {
  for (const BucketEntry& entry : plan_.buckets[bucket].entries) {
    if (!AllFinite(gradients_[gradients_.size() - 1 - entry.parameter])) {
      return false;
    }
  }
  return true;
}

Status SteppedReducer::AtStep(const Status& status) const {
  return Annotate(MarkPeerLost(status),
                  fmt::format("step {}", controller_.step()));
}

Status SteppedReducer::Start(const Slice& slice, MonoTime now) {
  StatusOr<std::unique_ptr<Work>> work =
      communicator_->Start({CollectiveKind::kAllReduce, slice});
  if (!work.ok()) return AtStep(work.status());
  progress_->CountCollective(slice.count * SizeOf(slice.type));
  works_.push_back(*std::move(work));
  if (!busy_since_) busy_since_ = now;
  return OkStatus();
}

// Operations end in the order in which they started.
void SteppedReducer::NoteIdle() {
  if (!busy_since_ || works_.empty() || !works_.back()->Poll()) return;
  busy_ += Now() - *busy_since_;
  busy_since_.reset();
}

// Of the step, which has no bucket under way any more.
Duration SteppedReducer::TakeBusy(MonoTime now) {
  if (busy_since_) busy_ += now - *busy_since_;
  busy_since_.reset();
  return std::exchange(busy_, Duration(0));
}

// In order, so that all ranks start the same; the last one only by Finish.
Status SteppedReducer::StartFullBuckets() {
  while (started_ + 1 < buffers_.size() && missing_[started_] == 0) {
    nonfinite_ = nonfinite_ || !Finite(started_);
    const BucketLayout& bucket = plan_.buckets[started_];
    LOCKSTEP_RETURN_IF_ERROR(
        Start({buffers_[started_], 0, bucket.count, bucket.type}, Now()));
    ++started_;
  }
  return OkStatus();
}

Status SteppedReducer::Ready(size_t i) {
  if (i >= ready_.size() || ready_[i]) {
    return InvalidArgument(
        "gradient {} of {} {}", i, ready_.size(),
        i < ready_.size() ? "is ready twice in one step" : "does not exist");
  }
  ready_[i] = true;
  NoteIdle();
  if (--missing_[bucket_of_[i]] > 0) return OkStatus();
  return StartFullBuckets();
}

Status SteppedReducer::WaitAll(MonoTime deadline) {
  Status first;
  for (const std::unique_ptr<Work>& work : works_) {
    Status status = work->Wait(deadline);
    if (first.ok()) first = std::move(status);
  }
  works_.clear();
  return first.ok() ? first : AtStep(first);
}

void SteppedReducer::Tell(const ControlWords& words, const StepInputs& inputs) {
  WriteTail({words, inputs.samples, inputs.loss_sum, last_wait_},
            communicator_->rank(), tail_);
}

// Reads the sum, which also has what the step before cost each rank.
StatusOr<Verdict> SteppedReducer::Hear(StepTailSum* sum) {
  *sum = ReadTail(tail_, communicator_->rank());
  progress_->SettleHeldBack(sum->straggler_wait);
  if (sum->lag) progress_->CountLag(*sum->lag);
  StatusOr<Verdict> verdict = controller_.Verify(sum->control);
  if (!verdict.ok() && ReasonOf(verdict.status()) == "ALARM") {
    return WithReason(verdict.status(), kReasonPeerLost);
  }
  return verdict;
}

StatusOr<StepResult> SteppedReducer::Finish(const StepInputs& inputs) {
  if (inputs.samples < 0 || inputs.samples > kMaxStepSamples) {
    return InvalidArgument("step {}: {} samples; a rank has 0 to {} in a step",
                           step(), inputs.samples, kMaxStepSamples);
  }
  NoteIdle();
  for (size_t& missing : missing_) missing = 0;
  LOCKSTEP_RETURN_IF_ERROR(StartFullBuckets());
  nonfinite_ =
      nonfinite_ || !Finite(started_) || !std::isfinite(inputs.loss_sum);
  if (options_.before_step) options_.before_step(&controller_);
  StepFacts facts;
  facts.cursor = MixCursor(inputs.epoch, inputs.position);
  facts.nonfinite = nonfinite_;
  facts.state_hash = inputs.state_hash;
  LOCKSTEP_ASSIGN_OR_RETURN(const ControlWords words, controller_.Begin(facts));
  Tell(words, inputs);

  const MonoTime arrived = Now();
  progress_->Enter(task::RankPhase::kAllReduce);
  const BucketLayout& last = plan_.buckets.back();
  LOCKSTEP_RETURN_IF_ERROR(
      Start({buffers_.back(), 0, last.count, last.type}, arrived));
  ++started_;
  LOCKSTEP_RETURN_IF_ERROR(WaitAll(arrived + options_.operation_timeout));
  const MonoTime ended = Now();
  StepTailSum sum;
  const StatusOr<Verdict> verdict = Hear(&sum);
  last_wait_ = ended - arrived;
  progress_->HoldBack(last_wait_, TakeBusy(ended));
  progress_->Enter(task::RankPhase::kOther);
  if (!verdict.ok()) return verdict.status();

  StepResult result;
  result.apply = verdict->apply;
  result.skipped = verdict->skipped;
  result.samples = sum.samples;
  result.loss = sum.samples == 0 || result.skipped
                    ? std::numeric_limits<double>::quiet_NaN()
                    : sum.loss_sum / static_cast<double>(sum.samples);
  counted_ = {controller_.step(),
              result.skipped,
              static_cast<uint64_t>(inputs.samples),
              result.loss,
              inputs.learning_rate,
              inputs.epoch};
  return result;
}

StatusOr<StepOrders> SteppedReducer::Commit() {
  LOCKSTEP_ASSIGN_OR_RETURN(StepOrders orders, controller_.Commit());
  progress_->CountStep(counted_);
  progress_->Publish();
  NextStep();
  if (orders.drain && !told_drain_ && communicator_->rank() == 0 &&
      options_.on_drain) {
    options_.on_drain();
  }
  told_drain_ = told_drain_ || orders.drain;
  return orders;
}

StatusOr<StepOrders> SteppedReducer::Settle() {
  LOCKSTEP_ASSIGN_OR_RETURN(const ControlWords words, controller_.BeginRound());
  Tell(words, StepInputs());
  const task::RankPhase phase = progress_->phase();
  progress_->Enter(task::RankPhase::kAllReduce);
  const Slice slice{buffers_.back(), plan_.control_offset_bytes / sizeof(float),
                    tail_.size(), DataType::kFloat32};
  const MonoTime began = Now();
  LOCKSTEP_RETURN_IF_ERROR(Start(slice, began));
  LOCKSTEP_RETURN_IF_ERROR(WaitAll(began + options_.operation_timeout));
  progress_->CountBusy(TakeBusy(Now()));
  StepTailSum sum;
  const Status heard = Hear(&sum).status();
  last_wait_ = Duration(0);
  progress_->Enter(phase);
  LOCKSTEP_RETURN_IF_ERROR(heard);
  LOCKSTEP_ASSIGN_OR_RETURN(StepOrders orders, controller_.Commit());
  progress_->Publish();
  return orders;
}

}  // namespace

StatusOr<std::unique_ptr<Reducer>> MakeSteppedReducer(
    const std::vector<Parameter>& parameters, SteppedReducerOptions options) {
  Communicator* communicator = options.communicator;
  StepControllerOptions control;
  control.rank = communicator->rank();
  control.world_size = communicator->size();
  control.generation = options.generation;
  control.fingerprint = options.fingerprint;
  control.start_step = options.reducer.start_step;
  control.checkpoint_interval = options.checkpoint_interval;
  control.state_hash_interval = options.reducer.state_hash_interval;
  LOCKSTEP_ASSIGN_OR_RETURN(StepController controller,
                            StepController::Create(control));
  LOCKSTEP_ASSIGN_OR_RETURN(
      BucketPlan plan, PlanGradients(parameters, options.reducer.bucket_bytes,
                                     communicator->size()));
  options.progress->Planned(options.reducer.total_steps,
                            options.reducer.global_batch);
  options.progress->SetCommitted(options.reducer.start_step);
  auto reducer = std::make_unique<SteppedReducer>(
      std::move(plan), parameters.size(), std::move(controller),
      std::move(options));
  LOCKSTEP_RETURN_IF_ERROR(reducer->Allocate());
  return std::unique_ptr<Reducer>(std::move(reducer));
}

}  // namespace lockstep
