#include "worker/runtime/stepped_reducer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "worker/runtime/busy_time.h"
#include "worker/runtime/device_gradients.h"
#include "worker/runtime/gradient_buckets.h"
#include "worker/runtime/order_learner.h"
#include "worker/runtime/peer_lost.h"
#include "worker/runtime/step_tail.h"

namespace lockstep {
namespace {

uint64_t ValueOf(const std::string& hex) {
  uint64_t value = 0;
  std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
  return value;
}

class SteppedReducer final : public Reducer {
 public:
  SteppedReducer(std::unique_ptr<GradientBuckets> buckets,
                 StepController controller, SteppedReducerOptions options)
      : options_(std::move(options)),
        communicator_(options_.communicator),
        progress_(options_.progress),
        inline_(communicator_->progress() == ProgressMode::kInline),
        controller_(std::move(controller)),
        buckets_(std::move(buckets)),
        device_(buckets_->on_device() ? std::make_unique<DeviceGradients>(
                                            communicator_, buckets_.get(),
                                            options_.reducer.device_stream)
                                      : nullptr),
        learner_(communicator_, buckets_->parameters(),
                 options_.reducer.learn_order && buckets_->order().empty(),
                 options_.learned) {}

  Status Allocate();

  std::span<float> gradient(size_t i) override { return buckets_->gradient(i); }
  size_t parameters() const override { return buckets_->parameters(); }
  void ZeroGradients() override {
    device_ != nullptr ? device_->Zero() : buckets_->Zero();
  }

  int64_t step() const override { return controller_.step(); }
  int64_t committed() const override { return controller_.committed(); }
  bool wants_state_hash() const override {
    return controller_.wants_state_hash();
  }

  Status Add(size_t i, std::span<const float> gradient) override;
  Status Put(size_t i, std::span<const float> gradient) override;
  Status Ready(size_t i) override;
  StatusOr<StepResult> Finish(const StepInputs& inputs) override;
  StatusOr<StepOrders> Commit() override;
  const std::vector<uint32_t>& order() const override {
    return buckets_->order();
  }
  Status Vote(uint64_t id, bool durable) override {
    if (options_.on_vote && in_flight()) options_.on_vote(*in_flight());
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
  // The next bucket needs nothing more.
  bool Starts() const {
    const size_t alone = buckets_->buckets() - (device_ != nullptr ? 0 : 1);
    return started_ < alone && buckets_->full(started_);
  }
  Status CheckIndex(size_t i, size_t elements) const;
  Status CheckGiven(size_t i, size_t elements) const;
  Status Arrived(size_t i);
  Status Start(const Operation& operation);
  void PollInline();
  Status StartFullBuckets();
  StatusOr<bool> SealRest();
  StatusOr<double> SquaresOfPart(MonoTime deadline);
  Status WaitAll(MonoTime arrived);
  Status MeasureNorm(MonoTime arrived, StepResult* result);
  void WriteTailOf(const ControlWords& words, const StepInputs& inputs);
  StatusOr<Verdict> ReadTailInto(StepTailSum* sum);
  Status Learn();
  Status AtStep(const Status& status) const;

  const SteppedReducerOptions options_;
  Communicator* const communicator_;
  Progress* const progress_;
  const bool inline_;
  StepController controller_;
  const std::unique_ptr<GradientBuckets> buckets_;
  const std::unique_ptr<DeviceGradients> device_;  // Null: on the host.
  OrderLearner learner_;
  const Buffer* norm_ = nullptr;  // A number, the communicator's.

  // Of the step under way.
  size_t started_ = 0;  // Buckets, from the first.
  std::vector<std::unique_ptr<Work>> works_;
  Progress::Step counted_;
  // Some bucket running before all that is left was to wait for them. None
  // where progress is inline.
  BusyTime hidden_;

  // For which the last step's reduction held this rank up.
  Duration last_wait_{};
  bool told_drain_ = false;
};

Status SteppedReducer::Allocate() {
  if (options_.reducer.clip_norm > 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(norm_, communicator_->Allocate(sizeof(double)));
  }
  if (device_ != nullptr) LOCKSTEP_RETURN_IF_ERROR(device_->Fit());
  LOCKSTEP_RETURN_IF_ERROR(learner_.Allocate());
  works_.reserve(buckets_->buckets());
  NextStep();
  return OkStatus();
}

void SteppedReducer::NextStep() {
  buckets_->BeginStep();
  if (device_ != nullptr) device_->BeginStep();
  started_ = 0;
  learner_.BeginStep();
  progress_->SetStep(controller_.step());
}

Status SteppedReducer::AtStep(const Status& status) const {
  return Annotate(MarkPeerLost(status),
                  fmt::format("step {}", controller_.step()));
}

Status SteppedReducer::Start(const Operation& operation) {
  StatusOr<std::unique_ptr<Work>> work = communicator_->Start(operation);
  if (!work.ok()) return AtStep(work.status());
  progress_->CountCollective(operation.slice.count *
                             SizeOf(operation.slice.type));
  works_.push_back(*std::move(work));
  return OkStatus();
}

// Moves on what is under way, where nobody else does.
void SteppedReducer::PollInline() {
  if (!inline_) return;
  for (const std::unique_ptr<Work>& work : works_) (void)work->Poll();
}

// In order, so that all ranks start the same; the one with the tail only by
// Finish.
Status SteppedReducer::StartFullBuckets() {
  while (Starts()) {
    if (device_ != nullptr) {
      LOCKSTEP_RETURN_IF_ERROR(AtStep(device_->StartLook(started_)));
    } else {
      buckets_->Seal(started_);
    }
    LOCKSTEP_RETURN_IF_ERROR(
        Start({CollectiveKind::kAllReduce, buckets_->slice(started_)}));
    ++started_;
  }
  return OkStatus();
}

// After all others have started: whether all of this rank's gradients are
// finite. On a device only known once they are there.
StatusOr<bool> SteppedReducer::SealRest() {
  if (device_ == nullptr) {
    buckets_->Seal(started_);
    return !buckets_->nonfinite();
  }
  StatusOr<bool> finite = device_->AllFinite(
      MonotonicNow() + kStreamPatience * options_.operation_timeout);
  if (!finite.ok()) return AtStep(finite.status());
  return finite;
}

Status SteppedReducer::CheckIndex(size_t i, size_t elements) const {
  if (i >= parameters() || buckets_->ready(i)) {
    return InvalidArgument(
        "gradient {} of {} {}", i, parameters(),
        i < parameters() ? "is ready twice in one step" : "does not exist");
  }
  if (elements != buckets_->gradient(i).size()) {
    return InvalidArgument("gradient {} has {} elements, not {}", i,
                           buckets_->gradient(i).size(), elements);
  }
  return OkStatus();
}

Status SteppedReducer::CheckGiven(size_t i, size_t elements) const {
  if (device_ != nullptr) {
    return InvalidArgument(
        "gradients on a device are written to gradient(i), then Ready(i): Add "
        "and Put take those of the host");
  }
  return CheckIndex(i, elements);
}

// Gradient `i` is complete: starts what that fills, and moves on the rest.
Status SteppedReducer::Arrived(size_t i) {
  learner_.See(i);
  if (works_.empty() && !Starts()) return OkStatus();
  if (!inline_) return StartFullBuckets();
  const MonoTime began = MonotonicNow();
  LOCKSTEP_RETURN_IF_ERROR(StartFullBuckets());
  PollInline();
  progress_->CountInline(MonotonicNow() - began);
  return OkStatus();
}

Status SteppedReducer::Add(size_t i, std::span<const float> gradient) {
  LOCKSTEP_RETURN_IF_ERROR(CheckGiven(i, gradient.size()));
  buckets_->Add(i, gradient);
  return OkStatus();
}

Status SteppedReducer::Put(size_t i, std::span<const float> gradient) {
  LOCKSTEP_RETURN_IF_ERROR(CheckGiven(i, gradient.size()));
  buckets_->AddLast(i, gradient);
  return Arrived(i);
}

Status SteppedReducer::Ready(size_t i) {
  const size_t size = i < parameters() ? buckets_->gradient(i).size() : 0;
  LOCKSTEP_RETURN_IF_ERROR(CheckIndex(i, size));
  buckets_->SetReady(i);
  return Arrived(i);
}

// From `arrived` on this rank has had nothing else to do.
Status SteppedReducer::WaitAll(MonoTime arrived) {
  const MonoTime deadline = arrived + options_.operation_timeout;
  // Where progress is inline: this rank's part of all of them before it waits
  // for the first.
  PollInline();
  Status first;
  for (const std::unique_ptr<Work>& work : works_) {
    Status status = work->Wait(deadline);
    if (first.ok()) first = std::move(status);
    if (const auto ran = work->ran(); ran && ran->began < arrived) {
      hidden_.Add(ran->began, std::min(ran->ended, arrived));
    }
  }
  works_.clear();
  return first.ok() ? first : AtStep(first);
}

void SteppedReducer::WriteTailOf(const ControlWords& words,
                                 const StepInputs& inputs) {
  WriteTail({words, inputs.samples, inputs.loss_sum, last_wait_},
            communicator_->rank(), buckets_->tail());
}

// Reads the sum, which also has what the step before cost each rank.
StatusOr<Verdict> SteppedReducer::ReadTailInto(StepTailSum* sum) {
  *sum = ReadTail(buckets_->tail(), communicator_->rank());
  progress_->SettleHeldBack(sum->straggler_wait);
  if (sum->lag) progress_->CountLag(*sum->lag);
  if (sum->late_rank >= 0) {
    progress_->CountLate(sum->late_rank, sum->late_by, sum->straggler_wait);
  }
  StatusOr<Verdict> verdict = controller_.Verify(sum->control);
  if (!verdict.ok() && ReasonOf(verdict.status()) == "ALARM") {
    return WithReason(verdict.status(), kReasonPeerLost);
  }
  return verdict;
}

StatusOr<double> SteppedReducer::SquaresOfPart(MonoTime deadline) {
  const int rank = communicator_->rank();
  const int size = communicator_->size();
  if (device_ == nullptr) return buckets_->SquaresOfPart(rank, size);
  StatusOr<double> squares = device_->SquaresOfPart(rank, size, deadline);
  if (!squares.ok()) return AtStep(squares.status());
  return squares;
}

// Each rank adds up the squares of its part: one number is all that is sent.
// All ranks come here, whatever they find in the control word.
Status SteppedReducer::MeasureNorm(MonoTime arrived, StepResult* result) {
  if (norm_ == nullptr) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(
      const double part, SquaresOfPart(arrived + options_.operation_timeout));
  std::memcpy(norm_->data, &part, sizeof(part));
  LOCKSTEP_RETURN_IF_ERROR(
      Start({CollectiveKind::kAllReduce, {norm_, 0, 1, DataType::kFloat64}}));
  LOCKSTEP_RETURN_IF_ERROR(WaitAll(arrived));
  double squares = 0;
  std::memcpy(&squares, norm_->data, sizeof(squares));
  result->gradient_norm = std::sqrt(squares);
  if (result->gradient_norm > options_.reducer.clip_norm) {
    result->gradient_scale = options_.reducer.clip_norm / result->gradient_norm;
  }
  return OkStatus();
}

StatusOr<StepResult> SteppedReducer::Finish(const StepInputs& inputs) {
  if (inputs.samples < 0 || inputs.samples > kMaxStepSamples) {
    return InvalidArgument("step {}: {} samples; a rank has 0 to {} in a step",
                           step(), inputs.samples, kMaxStepSamples);
  }
  buckets_->SetAllReady();
  LOCKSTEP_RETURN_IF_ERROR(StartFullBuckets());
  LOCKSTEP_ASSIGN_OR_RETURN(const bool finite, SealRest());
  if (options_.before_step) options_.before_step(&controller_);
  StepFacts facts;
  facts.cursor = MixCursor(inputs.epoch, inputs.position);
  facts.nonfinite = !finite || !std::isfinite(inputs.loss_sum);
  facts.state_hash = inputs.state_hash;
  LOCKSTEP_ASSIGN_OR_RETURN(const ControlWords words, controller_.Begin(facts));
  WriteTailOf(words, inputs);

  const MonoTime arrived = MonotonicNow();
  progress_->Enter(task::RankPhase::kAllReduce);
  LOCKSTEP_RETURN_IF_ERROR(
      Start({CollectiveKind::kAllReduce, device_ != nullptr
                                             ? buckets_->tail_slice()
                                             : buckets_->slice(started_)}));
  LOCKSTEP_RETURN_IF_ERROR(WaitAll(arrived));
  last_wait_ = MonotonicNow() - arrived;
  buckets_->Take();
  StepResult result;
  LOCKSTEP_RETURN_IF_ERROR(MeasureNorm(arrived, &result));
  StepTailSum sum;
  const StatusOr<Verdict> verdict = ReadTailInto(&sum);
  // What followed the wait is in the phase, too.
  progress_->HoldBack(last_wait_, hidden_.Take() + (MonotonicNow() - arrived));
  progress_->Enter(task::RankPhase::kOther);
  if (!verdict.ok()) return verdict.status();

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

// Gradients may change place.
Status SteppedReducer::Learn() {
  StatusOr<std::vector<uint32_t>> order =
      learner_.Agree(controller_.committed(), options_.operation_timeout);
  if (!order.ok()) return AtStep(order.status());
  if (order->empty()) return OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(buckets_->Rearrange(*std::move(order)));
  if (device_ != nullptr) LOCKSTEP_RETURN_IF_ERROR(AtStep(device_->Fit()));
  if (options_.on_order) {
    options_.on_order(buckets_->order(), controller_.committed(),
                      buckets_->plan_hash());
  }
  // Whoever has another layout is found in the next step.
  controller_.SetFingerprint(options_.fingerprint ^
                             ValueOf(buckets_->plan_hash()));
  return OkStatus();
}

StatusOr<StepOrders> SteppedReducer::Commit() {
  LOCKSTEP_ASSIGN_OR_RETURN(StepOrders orders, controller_.Commit());
  LOCKSTEP_RETURN_IF_ERROR(Learn());
  progress_->CountStep(counted_);
  progress_->Publish();
  NextStep();
  if (orders.drain && !told_drain_ && communicator_->rank() == 0 &&
      options_.on_drain) {
    options_.on_drain();
  }
  told_drain_ = told_drain_ || orders.drain;
  const int64_t planned = options_.reducer.total_steps;
  const bool early = planned <= 0 || controller_.committed() < planned;
  if (orders.stop && early && options_.on_early_stop) options_.on_early_stop();
  return orders;
}

StatusOr<StepOrders> SteppedReducer::Settle() {
  LOCKSTEP_ASSIGN_OR_RETURN(const ControlWords words, controller_.BeginRound());
  WriteTailOf(words, StepInputs());
  const task::RankPhase phase = progress_->phase();
  const MonoTime began = MonotonicNow();
  progress_->Enter(task::RankPhase::kAllReduce);
  LOCKSTEP_RETURN_IF_ERROR(
      Start({CollectiveKind::kAllReduce, buckets_->tail_slice()}));
  LOCKSTEP_RETURN_IF_ERROR(WaitAll(began));
  StepTailSum sum;
  const Status received = ReadTailInto(&sum).status();
  last_wait_ = Duration(0);
  progress_->Enter(phase);
  progress_->CountBusy(MonotonicNow() - began);
  LOCKSTEP_RETURN_IF_ERROR(received);
  LOCKSTEP_ASSIGN_OR_RETURN(StepOrders orders, controller_.Commit());
  progress_->Publish();
  return orders;
}

}  // namespace

StatusOr<std::unique_ptr<Reducer>> MakeSteppedReducer(
    const std::vector<Parameter>& parameters, SteppedReducerOptions options) {
  Communicator* communicator = options.communicator;
  ReducerOptions& reducing = options.reducer;
  if (!(reducing.clip_norm >= 0)) {
    return InvalidArgument("gradients cannot be clipped to a norm of {}",
                           reducing.clip_norm);
  }
  if (reducing.device_stream != nullptr &&
      communicator->device_memory() == nullptr) {
    return InvalidArgument(
        "gradients cannot lie on a device: backend {} reduces in the host's "
        "memory; leave device_stream out, or use backend nccl",
        communicator->backend());
  }
  // It does not sum in float32 and round once.
  if (reducing.bf16_wire && communicator->backend() == "nccl") {
    return InvalidArgument(
        "nccl would round bfloat16 at every hop: reduce gradients as fp32, or "
        "over shm, tcp or hierarchical");
  }
  if (!options.learned.order.empty()) {
    // Until then they are filled as they were when it was learned.
    reducing.order.clear();
    if (options.learned.at <= reducing.start_step) {
      reducing.order = std::exchange(options.learned.order, {});
    }
  }
  if (!options.sizes) {
    options.sizes = SizesFor(communicator->backend(), reducing.bucket_bytes);
  }
  StepControllerOptions control;
  control.rank = communicator->rank();
  control.world_size = communicator->size();
  control.generation = options.generation;
  control.fingerprint = options.fingerprint;
  control.start_step = reducing.start_step;
  control.checkpoint_interval = options.checkpoint_interval;
  control.state_hash_interval = reducing.state_hash_interval;
  LOCKSTEP_ASSIGN_OR_RETURN(StepController controller,
                            StepController::Create(control));
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<GradientBuckets> buckets,
                            GradientBuckets::Create(communicator, parameters,
                                                    reducing, *options.sizes));
  options.progress->SetWorldSize(communicator->size());
  options.progress->Planned(reducing.total_steps, reducing.global_batch);
  options.progress->SetCommitted(reducing.start_step);
  auto reducer = std::make_unique<SteppedReducer>(
      std::move(buckets), std::move(controller), std::move(options));
  LOCKSTEP_RETURN_IF_ERROR(reducer->Allocate());
  return std::unique_ptr<Reducer>(std::move(reducer));
}

}  // namespace lockstep
