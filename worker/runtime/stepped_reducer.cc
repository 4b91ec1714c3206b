#include "worker/runtime/stepped_reducer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "common/base/ascii.h"
#include "worker/runtime/device_gradients.h"
#include "worker/runtime/gradient_buckets.h"
#include "worker/runtime/gradient_reduction.h"
#include "worker/runtime/make_reduction.h"
#include "worker/runtime/order_learner.h"
#include "worker/runtime/peer_lost.h"
#include "worker/runtime/step_tail.h"

namespace lockstep::worker::runtime {
namespace {

uint64_t ValueOf(const std::string& hex) {
  uint64_t value = 0;
  std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
  return value;
}

class SteppedReducer final : public RecoverableReducer {
 public:
  SteppedReducer(std::unique_ptr<GradientReduction> reduction,
                 StepController controller, SteppedReducerOptions options)
      : options_(std::move(options)),
        progress_(options_.progress),
        controller_(std::move(controller)),
        reduction_(std::move(reduction)),
        learner_(options_.communicator, parameters(),
                 options_.reducer.learn_order && order().empty(),
                 options_.learned) {}

  Status Allocate();

  std::span<float> gradient(size_t i) override {
    return reduction_->buckets()->gradient(i);
  }
  size_t parameters() const override {
    return reduction_->buckets()->parameters();
  }
  void ZeroGradients() override {
    reduction_->device() != nullptr ? reduction_->device()->Zero()
                                    : reduction_->buckets()->Zero();
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
  Status NextShard(int64_t samples, double loss_sum) override;
  StatusOr<StepOrders> Commit() override;
  const std::vector<uint32_t>& order() const override {
    return reduction_->buckets()->order();
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

  Status Unbind() override {
    reduction_->Unbind();
    return controller_.Rewind();
  }
  Status Rebind(collective::Communicator* communicator,
                const Membership& membership) override;
  std::string Agreed() const override;
  StatusOr<StepOrders> Resume(const std::string& agreed, uint64_t generation,
                              uint64_t fingerprint) override;

 private:
  void NextStep();
  Status Learn();

  SteppedReducerOptions options_;
  Progress* const progress_;
  StepController controller_;
  const std::unique_ptr<GradientReduction> reduction_;
  OrderLearner learner_;
  Progress::Step counted_;
  // Of this step, so far. Its `waited` is for how long the last step's
  // reduction held this rank up.
  StepTail tail_;
  bool reported_drain_ = false;
  // Of a Commit that failed after it had counted the step.
  std::optional<StepOrders> untold_;
};

// Writes `tail` for the reduction.
void WriteStepTail(const SteppedReducerOptions& options, const StepTail& tail,
                   GradientBuckets* buckets) {
  const Membership& members = options.membership;
  const std::span<float> to = buckets->tail().words;
  if (options.elastic) {
    WriteShardTail(tail, members.place, members.world_size, to);
  } else {
    WriteTail(tail, members.place, to);
  }
}

// The sum, which also has what the step before cost each rank.
StepTailSum ReadStepTail(const SteppedReducerOptions& options,
                         GradientBuckets* buckets) {
  const Membership& members = options.membership;
  const std::span<const float> tail = buckets->tail().words;
  const StepTailSum sum =
      options.elastic ? ReadShardTail(tail, members.place, members.size(),
                                      members.world_size)
                      : ReadTail(tail, members.place);
  Progress* const progress = options.progress;
  progress->SettleHeldBack(sum.straggler_wait);
  if (sum.lag) progress->CountLag(*sum.lag);
  if (sum.late_rank >= 0) {
    progress->CountLate(members.members[sum.late_rank], sum.late_by,
                        sum.straggler_wait);
  }
  return sum;
}

StatusOr<Verdict> VerifyStep(StepController* controller,
                             const ControlWords& sum) {
  StatusOr<Verdict> verdict = controller->Verify(sum);
  if (!verdict.ok() && ReasonOf(verdict.status()) == "ALARM") {
    return WithReason(verdict.status(), kReasonPeerLost);
  }
  return verdict;
}

// A shard of the step is complete; its samples go to `tail`.
Status AddShard(const SteppedReducerOptions& options, int64_t step,
                int64_t samples, double loss_sum, StepTail* tail) {
  if (samples < 0 || tail->samples + samples > kMaxStepSamples) {
    return InvalidArgument("step {}: {} samples; a rank has 0 to {} in a step",
                           step, samples, kMaxStepSamples);
  }
  tail->samples += samples;
  tail->loss_sum += loss_sum;
  if (!options.elastic) return OkStatus();
  const std::vector<int>& own = options.membership.own_shards();
  const size_t at = std::min(tail->shard_losses.size(), own.size() - 1);
  tail->shard_losses.emplace_back(own[at], loss_sum);
  return OkStatus();
}

void NoteStop(const SteppedReducerOptions& options, int64_t committed,
              const StepOrders& orders) {
  const int64_t planned = options.reducer.total_steps;
  const bool early = planned <= 0 || committed < planned;
  if (orders.stop && early && options.on_early_stop) options.on_early_stop();
}

Status CheckIndex(GradientReduction* reduction, size_t i, size_t elements,
                  size_t wanted) {
  const bool exists = i < reduction->buckets()->parameters();
  if (!exists || reduction->buckets()->states().ready(i)) {
    return InvalidArgument(
        "gradient {} of {} {}", i, reduction->buckets()->parameters(),
        exists ? "is ready twice in one step" : "does not exist");
  }
  if (elements != wanted) {
    return InvalidArgument("gradient {} has {} elements, not {}", i, wanted,
                           elements);
  }
  return OkStatus();
}

// Of Add and Put.
Status CheckGiven(GradientReduction* reduction, size_t i, size_t elements) {
  if (reduction->device() != nullptr) {
    return InvalidArgument(
        "gradients on a device are written to gradient(i), then Ready(i): Add "
        "and Put take those of the host");
  }
  const bool exists = i < reduction->buckets()->parameters();
  return CheckIndex(reduction, i, elements,
                    exists ? reduction->buckets()->gradient(i).size() : 0);
}

Status SteppedReducer::Allocate() {
  LOCKSTEP_RETURN_IF_ERROR(
      reduction_->Allocate(options_.reducer.clip_norm > 0));
  LOCKSTEP_RETURN_IF_ERROR(learner_.Allocate());
  if (reduction_->buckets()->memory().in_communicator()) {
    // All is made: a recovery may ask for the gradients' memory.
    options_.communicator->Keep(reduction_->buckets()->whole().buffer);
  } else if (options_.communicator != nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(
        Rebind(options_.communicator, options_.membership));
  }
  NextStep();
  return OkStatus();
}

void SteppedReducer::NextStep() {
  const Duration waited = tail_.waited;
  tail_ = StepTail();
  tail_.waited = waited;
  reduction_->BeginStep(controller_.step());
  learner_.BeginStep();
  progress_->SetStep(controller_.step());
}

Status SteppedReducer::Add(size_t i, std::span<const float> gradient) {
  LOCKSTEP_RETURN_IF_ERROR(CheckGiven(reduction_.get(), i, gradient.size()));
  reduction_->buckets()->Add(i, gradient);
  return OkStatus();
}

Status SteppedReducer::Put(size_t i, std::span<const float> gradient) {
  LOCKSTEP_RETURN_IF_ERROR(CheckGiven(reduction_.get(), i, gradient.size()));
  reduction_->buckets()->AddLast(i, gradient);
  learner_.See(i);
  return reduction_->Advance();
}

Status SteppedReducer::Ready(size_t i) {
  const size_t size = i < parameters() ? gradient(i).size() : 0;
  LOCKSTEP_RETURN_IF_ERROR(CheckIndex(reduction_.get(), i, size, size));
  reduction_->buckets()->SetReady(i);
  learner_.See(i);
  return reduction_->Advance();
}

Status SteppedReducer::NextShard(int64_t samples, double loss_sum) {
  LOCKSTEP_RETURN_IF_ERROR(reduction_->CheckBound());
  LOCKSTEP_RETURN_IF_ERROR(
      AddShard(options_, step(), samples, loss_sum, &tail_));
  reduction_->buckets()->SetAllReady();
  return reduction_->EndShard();
}

StatusOr<StepResult> SteppedReducer::Finish(const StepInputs& inputs) {
  LOCKSTEP_RETURN_IF_ERROR(reduction_->CheckBound());
  LOCKSTEP_RETURN_IF_ERROR(
      AddShard(options_, step(), inputs.samples, inputs.loss_sum, &tail_));
  reduction_->buckets()->SetAllReady();
  LOCKSTEP_ASSIGN_OR_RETURN(const bool finite, reduction_->StartRest());
  if (options_.before_step) options_.before_step(&controller_);
  StepFacts facts;
  facts.cursor = MixCursor(inputs.epoch, inputs.position);
  facts.nonfinite = !finite || !std::isfinite(tail_.loss_sum);
  facts.state_hash = inputs.state_hash;
  LOCKSTEP_ASSIGN_OR_RETURN(const ControlWords words, controller_.Begin(facts));
  tail_.control = words;
  WriteStepTail(options_, tail_, reduction_->buckets());

  const MonoTime arrived = MonotonicNow();
  progress_->Enter(task::RankPhase::kAllReduce);
  LOCKSTEP_RETURN_IF_ERROR(reduction_->StartTail());
  LOCKSTEP_RETURN_IF_ERROR(reduction_->WaitAll(arrived));
  tail_.waited = MonotonicNow() - arrived;
  reduction_->buckets()->Take();
  StepResult result;
  // All ranks come here, whatever they find in the control word.
  if (const double most = options_.reducer.clip_norm; most > 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(result.gradient_norm, reduction_->Norm(arrived));
    if (result.gradient_norm > most) {
      result.gradient_scale = most / result.gradient_norm;
    }
  }
  const StepTailSum sum = ReadStepTail(options_, reduction_->buckets());
  const StatusOr<Verdict> verdict = VerifyStep(&controller_, sum.control);
  // What followed the wait is in the phase, too.
  progress_->HoldBack(tail_.waited,
                      reduction_->TakeHidden() + (MonotonicNow() - arrived));
  progress_->Enter(task::RankPhase::kOther);
  if (!verdict.ok()) return verdict.status();

  result.apply = verdict->apply;
  result.skipped = verdict->skipped;
  result.samples = sum.samples;
  result.loss = sum.samples == 0 || result.skipped
                    ? std::numeric_limits<double>::quiet_NaN()
                    : sum.loss_sum / static_cast<double>(sum.samples);
  counted_ = {.committed = controller_.step(),
              .skipped = result.skipped,
              .samples = static_cast<uint64_t>(tail_.samples),
              .loss = result.loss,
              .learning_rate = inputs.learning_rate,
              .epoch = inputs.epoch};
  return result;
}

// Gradients may change place.
Status SteppedReducer::Learn() {
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::vector<uint32_t> order,
      learner_.Agree(controller_.committed(), options_.operation_timeout));
  if (order.empty()) return OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(reduction_->Rearrange(std::move(order)));
  GradientBuckets* const buckets = reduction_->buckets();
  if (options_.on_order) {
    options_.on_order(buckets->order(), controller_.committed(),
                      buckets->plan_hash());
  }
  // A rank with another layout is found in the next step.
  controller_.SetFingerprint(options_.fingerprint ^
                             ValueOf(buckets->plan_hash()));
  return OkStatus();
}

StatusOr<StepOrders> SteppedReducer::Commit() {
  LOCKSTEP_ASSIGN_OR_RETURN(StepOrders orders, controller_.Commit());
  progress_->CountStep(counted_);
  progress_->Publish();
  // The step counts, whatever comes of this.
  if (const Status learned = Learn(); !learned.ok()) {
    untold_ = std::move(orders);
    return Annotate(MarkPeerLost(learned), fmt::format("step {}", step()));
  }
  NextStep();
  if (orders.drain && !reported_drain_ && options_.membership.place == 0 &&
      options_.on_drain) {
    options_.on_drain();
  }
  reported_drain_ = reported_drain_ || orders.drain;
  NoteStop(options_, controller_.committed(), orders);
  return orders;
}

StatusOr<StepOrders> SteppedReducer::Settle() {
  LOCKSTEP_RETURN_IF_ERROR(reduction_->CheckBound());
  LOCKSTEP_ASSIGN_OR_RETURN(const ControlWords words, controller_.BeginRound());
  tail_.control = words;
  WriteStepTail(options_, tail_, reduction_->buckets());
  const task::RankPhase phase = progress_->phase();
  const MonoTime began = MonotonicNow();
  progress_->Enter(task::RankPhase::kAllReduce);
  LOCKSTEP_RETURN_IF_ERROR(reduction_->StartTailAlone());
  LOCKSTEP_RETURN_IF_ERROR(reduction_->WaitAll(began));
  const StepTailSum sum = ReadStepTail(options_, reduction_->buckets());
  const Status received = VerifyStep(&controller_, sum.control).status();
  tail_.waited = Duration(0);
  progress_->Enter(phase);
  progress_->CountBusy(MonotonicNow() - began);
  LOCKSTEP_RETURN_IF_ERROR(received);
  LOCKSTEP_ASSIGN_OR_RETURN(StepOrders orders, controller_.Commit());
  progress_->Publish();
  return orders;
}

Status SteppedReducer::Rebind(collective::Communicator* communicator,
                              const Membership& membership) {
  options_.communicator = communicator;
  options_.membership = membership;
  controller_.SetMembers(membership.place, membership.size());
  learner_.Rebind(communicator);
  return reduction_->Rebind(communicator, membership);
}

// A line each: orders, the order of the buckets, and what the learner knows.
std::string SteppedReducer::Agreed() const {
  return fmt::format("{}\n{}\n{}\n{}\n{}", Encode(controller_.Export()),
                     FormatOrder(order()), learner_.learning() ? 1 : 0,
                     FormatOrder(learner_.known().order), learner_.known().at);
}

StatusOr<StepOrders> SteppedReducer::Resume(const std::string& text,
                                            uint64_t generation,
                                            uint64_t fingerprint) {
  const std::vector<std::string_view> lines = SplitText(text, '\n');
  LearnedOrder known;
  if (lines.size() != 5 ||
      std::from_chars(lines[4].data(), lines[4].data() + lines[4].size(),
                      known.at)
              .ec != std::errc()) {
    return DataLoss("what the ranks agree on is invalid");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const AgreedOrders agreed,
                            DecodeAgreedOrders(lines[0]));
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<uint32_t> order, ParseOrder(lines[1]));
  LOCKSTEP_ASSIGN_OR_RETURN(known.order, ParseOrder(lines[3]));
  LOCKSTEP_RETURN_IF_ERROR(learner_.Resume(lines[2] == "1", std::move(known)));
  GradientBuckets* const buckets = reduction_->buckets();
  if (order != buckets->order()) {
    LOCKSTEP_RETURN_IF_ERROR(reduction_->Rearrange(std::move(order)));
  }
  options_.fingerprint = fingerprint;
  StepOrders orders = controller_.Import(
      agreed, generation, fingerprint ^ ValueOf(buckets->plan_hash()));
  // The program knows of no checkpoint that this Commit began.
  if (untold_ && (untold_->settled || untold_->checkpoint)) {
    orders.settled = untold_->settled;
  }
  untold_.reset();
  tail_.waited = Duration(0);
  progress_->SetCommitted(controller_.committed());
  NextStep();
  NoteStop(options_, controller_.committed(), orders);
  return orders;
}

}  // namespace

StatusOr<std::unique_ptr<RecoverableReducer>> MakeSteppedReducer(
    const std::vector<Parameter>& parameters, SteppedReducerOptions options) {
  LOCKSTEP_RETURN_IF_ERROR(CompleteOptions(&options));
  const ReducerOptions& reducing = options.reducer;
  StepControllerOptions control;
  control.rank = std::max(0, options.membership.place);
  control.world_size = options.membership.size();
  control.generation = options.generation;
  control.fingerprint = options.fingerprint;
  control.start_step = reducing.start_step;
  control.checkpoint_interval = options.checkpoint_interval;
  control.state_hash_interval = reducing.state_hash_interval;
  LOCKSTEP_ASSIGN_OR_RETURN(StepController controller,
                            StepController::Create(control));
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<GradientReduction> reduction,
                            MakeReduction(parameters, options));
  options.progress->SetWorldSize(options.membership.world_size);
  options.progress->Planned(reducing.total_steps, reducing.global_batch);
  options.progress->SetCommitted(reducing.start_step);
  auto reducer = std::make_unique<SteppedReducer>(
      std::move(reduction), std::move(controller), std::move(options));
  LOCKSTEP_RETURN_IF_ERROR(reducer->Allocate());
  return std::unique_ptr<RecoverableReducer>(std::move(reducer));
}

}  // namespace lockstep::worker::runtime
