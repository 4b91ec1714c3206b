#include "worker/trainer/train_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/logging.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/runtime/gradients.h"
#include "worker/trainer/evaluation.h"
#include "worker/trainer/input.h"

namespace lockstep {
namespace {

task::InputCounters InputOf(const Prefetcher& input, size_t depth) {
  const PrefetcherCounters counters = input.counters();
  task::InputCounters shown;
  shown.bytes = counters.bytes;
  shown.corrupt_records = counters.corrupt;
  shown.queue_depth = counters.queued;
  shown.queue_capacity = depth;
  shown.read_seconds = ToSeconds(counters.reading);
  shown.decode_seconds = ToSeconds(counters.decoding);
  return shown;
}

}  // namespace

TrainLoop::TrainLoop(FileSystem* fs, Session* session,
                     const TrainerOptions& options)
    : fs_(fs),
      session_(session),
      options_(options),
      faults_(options.faults, session->rank(), session->attempt()) {}

TrainLoop::~TrainLoop() = default;

Status TrainLoop::Run() {
  // Every rank sees the same data, and says so when they form.
  LOCKSTEP_RETURN_IF_ERROR(OpenData());
  LOCKSTEP_RETURN_IF_ERROR(Form());
  // Every rank begins with the same parameters: drawn from the same seed, or
  // loaded from the same checkpoint.
  LOCKSTEP_RETURN_IF_ERROR(MakeReplica());
  // A damaged checkpoint is set aside by the next generation.
  would_repeat_ = false;
  LOCKSTEP_RETURN_IF_ERROR(RestoreState());
  would_repeat_ = true;
  LOCKSTEP_RETURN_IF_ERROR(Connect());
  while (!Ended()) {
    LOCKSTEP_RETURN_IF_ERROR(Step());
  }
  return End();
}

bool TrainLoop::IsPermanent(const Status& error) const {
  if (!would_repeat_ || progress_.step > 0 ||
      session_->identity().lineage.size() > 1 || Session::IsVictim(error)) {
    return false;
  }
  return error.code() == StatusCode::kNotFound ||
         error.code() == StatusCode::kInvalidArgument ||
         error.code() == StatusCode::kDataLoss;
}

Status TrainLoop::Step() {
  const int64_t step = reducer_->step();
  if (stop_signal_->caught() != 0) session_->RequestDrain();

  // This rank's stripe of the step's samples. It can be empty where the last
  // step of an epoch is short.
  session_->Enter(Phase::kInput);
  would_repeat_ = true;
  const Status read = NextBatch(input_.get(), &batch_);
  // Also of what could not be read: it is this rank's last word.
  session_->progress()->SetInput(InputOf(*input_, input_depth_));
  LOCKSTEP_RETURN_IF_ERROR(read);
  would_repeat_ = false;

  // Forward and backward. Each gradient goes to its place in a bucket of the
  // communicator as soon as it is there, and full buckets set out at once.
  session_->Enter(Phase::kCompute);
  LOCKSTEP_RETURN_IF_ERROR(faults_.BeforeStep(step));
  LOCKSTEP_ASSIGN_OR_RETURN(const double loss_sum, ComputeGradients(step));

  // The sum over all ranks, and with it the control word: after Finish every
  // rank knows that every rank is at this step and that the sum is good.
  StepInputs inputs;
  inputs.samples = static_cast<int64_t>(batch_.count);
  inputs.loss_sum = loss_sum;
  inputs.epoch = batch_.end.epoch;
  inputs.position = batch_.end.position;
  inputs.learning_rate = schedule_.At(step);
  if (reducer_->wants_state_hash()) inputs.state_hash = StateHashNow();
  LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result, reducer_->Finish(inputs));

  // Only now may the parameters change. A step whose gradient is not finite
  // is skipped by all; it is committed all the same, its samples are used up.
  session_->Enter(Phase::kOptimizer);
  if (result.apply) Apply(inputs.learning_rate, result.gradient_scale);
  LOCKSTEP_ASSIGN_OR_RETURN(const StepOrders orders, reducer_->Commit());
  session_->Enter(Phase::kOther);
  progress_.step = step;
  progress_.cursor = batch_.end;
  logger_->Step(step, batch_.begin.epoch, result, inputs.learning_rate,
                MonotonicNow());

  // What belongs to this step comes before its checkpoint, so that a run that
  // goes on from there need not do it again.
  LOCKSTEP_RETURN_IF_ERROR(EvaluateIfDue());
  LOCKSTEP_RETURN_IF_ERROR(saver_->Obey(orders, [this] { return Save(); }));
  ordered_to_stop_ = orders.stop.has_value();
  told_to_stop_ = orders.drain;
  return saver_->Look();
}

bool TrainLoop::Ended() const {
  return progress_.step >= plan_.total_steps || progress_.stopped_early ||
         ordered_to_stop_ || told_to_stop_;
}

StatusOr<double> TrainLoop::ComputeGradients(int64_t step) {
  if (batch_.count == 0) {
    reducer_->ZeroGradients();
    return 0.0;
  }
  // In as many passes as it takes; only the last one's gradients set out. Where
  // there is one, they may be made in their place.
  const auto most = static_cast<uint64_t>(options_.batch_size);
  double loss_sum = 0;
  std::span<const std::span<float>> places;
  if (batch_.count <= most) {
    places_.clear();
    for (size_t i = 0; i < reducer_->parameters(); ++i) {
      places_.push_back(reducer_->gradient(i));
    }
    places = places_;
  }
  for (uint64_t first = 0; first < batch_.count; first += most) {
    const uint64_t count = std::min(most, batch_.count - first);
    const bool last = first + count == batch_.count;
    LOCKSTEP_ASSIGN_OR_RETURN(
        const double loss, replica_->Backward(
                               batch_, first, count,
                               [&](size_t i, std::span<const float> gradient) {
                                 return TakeGradient(step, i, gradient, last);
                               },
                               places));
    loss_sum += loss;
  }
  return loss_sum;
}

Status TrainLoop::TakeGradient(int64_t step, size_t i,
                               std::span<const float> gradient, bool last) {
  if (!last) return reducer_->Add(i, gradient);
  if (i != 0 || !faults_.SpoilsGradient(step)) {
    return reducer_->Put(i, gradient);
  }
  std::vector<float> spoilt(gradient.begin(), gradient.end());
  spoilt[0] = std::numeric_limits<float>::quiet_NaN();
  return reducer_->Put(i, spoilt);
}

void TrainLoop::Apply(double learning_rate, double gradient_scale) {
  gradients_.clear();
  for (size_t i = 0; i < reducer_->parameters(); ++i) {
    gradients_.emplace_back(reducer_->gradient(i));
  }
  optimizer_->Step(learning_rate, gradients_, gradient_scale);
}

Status TrainLoop::EvaluateIfDue() {
  const bool epoch_ends = batch_.end.epoch != batch_.begin.epoch ||
                          batch_.end.position == data_->plan.samples();
  const auto epochs_done = static_cast<int64_t>(batch_.begin.epoch) + 1;
  if (!data_->eval || !epoch_ends || options_.eval_every_epochs == 0 ||
      epochs_done % options_.eval_every_epochs != 0) {
    return OkStatus();
  }
  return EvaluateNow();
}

Status TrainLoop::EvaluateNow() {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Evaluation evaluation,
      Evaluate(session_, replica_.get(), *data_, classes_));
  progress_.Observe(evaluation.accuracy, evaluation.loss,
                    options_.early_stopping_patience);
  logger_->Evaluated(progress_, evaluation.samples);
  logger_->Resume(MonotonicNow());
  return OkStatus();
}

Status TrainLoop::End() {
  LOCKSTEP_RETURN_IF_ERROR(saver_->Finish([this] { return Save(); }));
  // An order to stop that comes with the last step changes nothing.
  const bool whole =
      progress_.step >= plan_.total_steps || progress_.stopped_early;
  if (whole && data_->eval && progress_.evaluated_step != progress_.step) {
    LOCKSTEP_RETURN_IF_ERROR(EvaluateNow());
  }
  LOCKSTEP_RETURN_IF_ERROR(saver_->SaveNow([this] { return Save(); }));
  if (whole) LOCKSTEP_RETURN_IF_ERROR(SaveModel());
  if (options_.param_hash) PrintParameterHash();
  // Nobody leaves before all is written: who ends early looks lost.
  LOCKSTEP_RETURN_IF_ERROR(session_->Barrier());
  if (!whole && told_to_stop_) {
    return WithReason(
        Cancelled("told to stop by a signal after step {}", progress_.step),
        kReasonStopped);
  }
  logger_->Print(fmt::format("{} after step {} of {}",
                             !whole ? "stopped as ordered"
                             : progress_.stopped_early
                                 ? "ended early, the accuracy rises no more,"
                                 : "done",
                             progress_.step, plan_.total_steps));
  return OkStatus();
}

Status TrainLoop::SaveModel() {
  for (;;) {
    const Status mine = WriteModel();
    // The trained state is in memory only: nobody leaves for want of space.
    LOCKSTEP_ASSIGN_OR_RETURN(const bool again, session_->AwaitSpace(mine));
    if (!again) return mine;
  }
}

Status TrainLoop::WriteModel() {
  if (!session_->chief() || output_.empty()) return OkStatus();
  session_->Enter(Phase::kCheckpoint);
  checkpoint::Metadata metadata = {
      {"format", "pt"},
      {"model", options_.model},
      {"classes", std::to_string(classes_)},
      {"image", FormatShape(data_->shape)},
      {"input", "(N, channels, height, width), each pixel / 127.5 - 1"},
      {"job", session_->identity().job},
      {"step", std::to_string(progress_.step)},
  };
  if (progress_.accuracy >= 0) {
    metadata["accuracy"] = fmt::format("{:.6f}", progress_.accuracy);
  }
  const std::string path = JoinPath(output_, "model.safetensors");
  LOCKSTEP_RETURN_IF_ERROR(
      checkpoint::SaveSafetensors(fs_, path, replica_->tensors(), metadata));
  session_->ReportArtifact("model", path);
  logger_->Print("model: " + path);
  session_->Enter(Phase::kOther);
  return OkStatus();
}

void TrainLoop::PrintParameterHash() {
  fmt::print("param_hash rank={} step={} {:016x}\n", session_->rank(),
             progress_.step, checkpoint::StateHash(replica_->tensors()));
}

StatusOr<SavedState> TrainLoop::Save() {
  LOCKSTEP_ASSIGN_OR_RETURN(std::string rng, replica_->SaveRng());
  return SavedState{StateTensors(*replica_, optimizer_.get()), progress_,
                    std::move(rng), FormatOrder(reducer_->order())};
}

uint64_t TrainLoop::StateHashNow() {
  return checkpoint::StateHash(StateTensors(*replica_, optimizer_.get()));
}

}  // namespace lockstep
