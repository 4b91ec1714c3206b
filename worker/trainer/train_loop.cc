#include "worker/trainer/train_loop.h"

#include <fmt/format.h>

#include <utility>

#include "worker/checkpoint/safetensors.h"
#include "worker/runtime/gradients.h"
#include "worker/trainer/evaluation.h"
#include "worker/trainer/input.h"

namespace lockstep::worker::trainer {

TrainLoop::TrainLoop(FileSystem* fs, runtime::Session* session,
                     const TrainerOptions& options)
    : fs_(fs),
      session_(session),
      options_(options),
      faults_(options.faults, session->rank(), session->identity().attempt,
              session->identity().recovering) {}

TrainLoop::~TrainLoop() = default;

Status TrainLoop::Run() {
  // Every rank must have the same data; the ranks compare it when they form.
  LOCKSTEP_ASSIGN_OR_RETURN(job_, PrepareTraining(fs_, session_, options_));
  LOCKSTEP_RETURN_IF_ERROR(FormRanks(session_, options_, &*job_));
  // Every rank begins with the same parameters: drawn from the same seed,
  // loaded from the same checkpoint, or those of a peer.
  LOCKSTEP_RETURN_IF_ERROR(MakeModel());
  bool recovers = session_->identity().recovering;
  if (!recovers) {
    // A damaged checkpoint is set aside by the next generation.
    would_repeat_ = false;
    LOCKSTEP_RETURN_IF_ERROR(RestoreState());
    would_repeat_ = true;
  }
  LOCKSTEP_RETURN_IF_ERROR(MakeReducer());
  if (!recovers) LOCKSTEP_RETURN_IF_ERROR(Connect());
  Status status = recovers ? OkStatus() : Train();
  while (recovers || runtime::CanRecover(*session_, status)) {
    status = Recover(status);
    if (status.ok()) status = Train();
    recovers = false;
  }
  return status;
}

Status TrainLoop::Train() {
  // A recovery may have interrupted the evaluation.
  const data::DataCursor& at = progress_.cursor;
  if (progress_.step > restored_.progress.step && at.position == 0) {
    LOCKSTEP_RETURN_IF_ERROR(EvaluateIfDue(static_cast<int64_t>(at.epoch)));
  }
  while (!Ended()) {
    LOCKSTEP_RETURN_IF_ERROR(Step());
  }
  return End();
}

bool TrainLoop::IsPermanent(const Status& error) const {
  if (!would_repeat_ || progress_.step > 0 || session_->identity().recovering ||
      session_->identity().lineage.size() > 1 ||
      runtime::Session::IsVictim(error)) {
    return false;
  }
  return error.code() == StatusCode::kNotFound ||
         error.code() == StatusCode::kInvalidArgument ||
         error.code() == StatusCode::kDataLoss;
}

StatusOr<runtime::StepInputs> TrainLoop::ComputeGradients(int64_t step) {
  runtime::StepInputs inputs;
  for (size_t i = 0; i < input_->shards(); ++i) {
    // The last shard goes with Finish.
    if (i > 0) {
      LOCKSTEP_RETURN_IF_ERROR(
          reducer_->NextShard(inputs.samples, inputs.loss_sum));
    }
    // This shard of the step's samples. It can be empty where the last step of
    // an epoch is short.
    session_->Enter(runtime::Phase::kInput);
    would_repeat_ = true;
    LOCKSTEP_RETURN_IF_ERROR(input_->Next(i, session_->progress()));
    would_repeat_ = false;

    // Forward and backward. Each gradient goes to its place in a bucket of the
    // communicator as soon as it is there, and full buckets set out at once.
    session_->Enter(runtime::Phase::kCompute);
    if (i == 0) LOCKSTEP_RETURN_IF_ERROR(faults_.BeforeStep(step));
    if (options_.run.elastic) {
      LOCKSTEP_RETURN_IF_ERROR(model_->replica()->SeedShard(
          options_.seed, step,
          runtime::MembershipOf(*session_).own_shards()[i]));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(
        inputs.loss_sum,
        model_->ComputeGradients(input_->batch(), step, reducer_.get()));
    inputs.samples = static_cast<int64_t>(input_->batch().count);
  }
  return inputs;
}

Status TrainLoop::Step() {
  const int64_t step = reducer_->step();
  if (stop_signal_->caught() != 0) session_->RequestDrain();
  LOCKSTEP_RETURN_IF_ERROR(runtime::CheckMembership(session_));
  LOCKSTEP_ASSIGN_OR_RETURN(runtime::StepInputs inputs, ComputeGradients(step));

  // The sum over all ranks, and with it the control word: after Finish every
  // rank knows that every rank is at this step and that the sum is good.
  const data::DataCursor& begin = input_->batch().begin;
  const data::DataCursor& end = input_->batch().end;
  inputs.epoch = end.epoch;
  inputs.position = end.position;
  inputs.learning_rate = job_->schedule.At(step);
  if (reducer_->wants_state_hash()) inputs.state_hash = model_->StateHash();
  LOCKSTEP_ASSIGN_OR_RETURN(const runtime::StepResult result,
                            reducer_->Finish(inputs));

  // Only now may the parameters change. A step whose gradient is not finite
  // is skipped by all; it is committed all the same, its samples are used up.
  session_->Enter(runtime::Phase::kOptimizer);
  if (result.apply) {
    model_->Apply(reducer_.get(), inputs.learning_rate, result.gradient_scale);
  }
  StatusOr<runtime::StepOrders> orders = reducer_->Commit();
  // It may count the step and then lose a peer: a recovery goes on from here.
  if (reducer_->committed() == step) {
    progress_.step = step;
    progress_.cursor = end;
  }
  LOCKSTEP_RETURN_IF_ERROR(orders.status());
  orders_ = *std::move(orders);
  saver_->TakeSettled(&orders_);
  session_->Enter(runtime::Phase::kOther);
  logger_->Step(step, begin.epoch, result, inputs.learning_rate,
                MonotonicNow());

  // What belongs to this step comes before its checkpoint, so that a run that
  // goes on from there need not do it again.
  if (end.epoch != begin.epoch || end.position == job_->data.plan.samples()) {
    LOCKSTEP_RETURN_IF_ERROR(
        EvaluateIfDue(static_cast<int64_t>(begin.epoch) + 1));
  }
  LOCKSTEP_RETURN_IF_ERROR(saver_->Obey(orders_, [this] { return Save(); }));
  return saver_->Look();
}

bool TrainLoop::Ended() const {
  return progress_.step >= job_->plan.total_steps || progress_.stopped_early ||
         orders_.stop || orders_.drain;
}

Status TrainLoop::EvaluateIfDue(int64_t epochs_done) {
  const int64_t every = options_.evaluation.every_epochs;
  if (!job_->data.eval || every == 0 || epochs_done % every != 0 ||
      progress_.evaluated_step == progress_.step) {
    return OkStatus();
  }
  return EvaluateNow();
}

Status TrainLoop::EvaluateNow() {
  LOCKSTEP_ASSIGN_OR_RETURN(const Evaluation evaluation,
                            Evaluate(session_, model_->replica(), job_->data,
                                     job_->classes, options_.run.elastic));
  progress_.Observe(evaluation.accuracy, evaluation.loss,
                    options_.evaluation.patience);
  logger_->Evaluated(progress_, evaluation.samples);
  logger_->Resume(MonotonicNow());
  return OkStatus();
}

Status TrainLoop::End() {
  LOCKSTEP_RETURN_IF_ERROR(saver_->Finish([this] { return Save(); }));
  // An order to stop that comes with the last step changes nothing.
  const bool whole =
      progress_.step >= job_->plan.total_steps || progress_.stopped_early;
  if (whole && job_->data.eval && progress_.evaluated_step != progress_.step) {
    LOCKSTEP_RETURN_IF_ERROR(EvaluateNow());
  }
  LOCKSTEP_RETURN_IF_ERROR(saver_->SaveNow([this] { return Save(); }));
  if (whole) LOCKSTEP_RETURN_IF_ERROR(SaveModel());
  if (options_.run.param_hash) PrintParameterHash();
  // Ranks leave together after all is written: one that leaves early looks
  // lost.
  LOCKSTEP_RETURN_IF_ERROR(session_->Barrier());
  if (!whole && orders_.drain) {
    return WithReason(
        Cancelled("stopped by a signal after step {}", progress_.step),
        kReasonStopped);
  }
  logger_->Print(
      fmt::format("{} after step {} of {}",
                  !whole ? "stopped on request"
                  : progress_.stopped_early
                      ? "stopped early because the accuracy no longer rises,"
                      : "done",
                  progress_.step, job_->plan.total_steps));
  return OkStatus();
}

Status TrainLoop::SaveModel() {
  for (;;) {
    const Status mine = WriteModel();
    // The trained state is only in memory: ranks wait for disk space.
    LOCKSTEP_ASSIGN_OR_RETURN(const bool again, session_->AwaitSpace(mine));
    if (!again) return mine;
  }
}

Status TrainLoop::WriteModel() {
  if (!session_->chief() || job_->output.empty()) return OkStatus();
  session_->Enter(runtime::Phase::kCheckpoint);
  checkpoint::Metadata metadata = {
      {"format", "pt"},
      {"model", options_.model},
      {"classes", std::to_string(job_->classes)},
      {"image", FormatShape(job_->data.shape)},
      {"input", "(N, channels, height, width), each pixel / 127.5 - 1"},
      {"job", session_->identity().job},
      {"step", std::to_string(progress_.step)},
  };
  if (progress_.accuracy >= 0) {
    metadata["accuracy"] = fmt::format("{:.6f}", progress_.accuracy);
  }
  const std::string path = JoinPath(job_->output, "model.safetensors");
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::SaveSafetensors(
      fs_, path, model_->replica()->tensors(), metadata));
  session_->ReportArtifact("model", path);
  logger_->Print("model: " + path);
  session_->Enter(runtime::Phase::kOther);
  return OkStatus();
}

void TrainLoop::PrintParameterHash() {
  fmt::print("param_hash rank={} step={} {:016x}\n", session_->rank(),
             progress_.step,
             checkpoint::StateHash(model_->replica()->tensors()));
}

StatusOr<SavedState> TrainLoop::Save() {
  std::string rng;
  // Else each shard of a step has its own.
  if (!options_.run.elastic) {
    LOCKSTEP_ASSIGN_OR_RETURN(rng, model_->replica()->SaveRng());
  }
  return SavedState{StateTensors(*model_->replica(), model_->optimizer()),
                    progress_, std::move(rng),
                    runtime::FormatOrder(reducer_->order())};
}

}  // namespace lockstep::worker::trainer
