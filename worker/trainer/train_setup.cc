// What TrainLoop does before its first step.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "worker/trainer/flops.h"
#include "worker/trainer/restore.h"
#include "worker/trainer/train_loop.h"

namespace lockstep::worker::trainer {

ModelOptions TrainLoop::ModelOf() const {
  ModelOptions model;
  model.name = options_.model;
  model.shape = job_->data.shape;
  model.classes = job_->classes;
  model.seed = options_.seed;
  return model;
}

void TrainLoop::ReportAsChief() {
  session_->Report(runtime::kFlopsPerSampleValue, FlopsPerSample(ModelOf()));
  logger_->ReportPlan();
  logger_->ReportEvaluation(progress_);
}

Status TrainLoop::MakeModel() {
  const ModelOptions model = ModelOf();
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Replica> replica,
                            Replica::Create(model, session_->rank()));
  if (session_->chief()) {
    session_->Report(runtime::kFlopsPerSampleValue, FlopsPerSample(model));
  }
  std::vector<OptimizedParameter> parameters;
  for (size_t i = 0; i < replica->parameters(); ++i) {
    parameters.push_back({replica->tensors()[i].name, replica->values(i)});
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<Optimizer> optimizer,
      MakeOptimizer(options_.optimizer, std::move(parameters)));
  model_ = std::make_unique<LocalModel>(
      std::move(replica), std::move(optimizer), &faults_, options_.batch_size);
  return OkStatus();
}

Status TrainLoop::RestoreState() {
  const MonoTime began = MonotonicNow();
  LOCKSTEP_ASSIGN_OR_RETURN(
      restored_, Restore(fs_, session_, job_->checkpoint_root, job_->facts,
                         model_->replica(), model_->optimizer(),
                         /*random_numbers=*/!options_.run.elastic));
  progress_ = restored_.progress;
  if (restored_.from) {
    session_->progress()->CountCheckpointTime(task::CheckpointPhase::kRestore,
                                              MonotonicNow() - began);
  }
  return OkStatus();
}

Status TrainLoop::MakeReducer() {
  std::vector<runtime::Parameter> parameters;
  for (size_t i = 0; i < model_->replica()->parameters(); ++i) {
    parameters.push_back({model_->replica()->tensors()[i].name,
                          model_->replica()->values(i).size()});
  }
  runtime::ReducerOptions reducer;
  reducer.start_step = progress_.step;
  reducer.total_steps = job_->plan.total_steps;
  reducer.global_batch = job_->plan.global_batch;
  // Elastic sums have one order, whatever the buckets.
  if (!options_.run.elastic) {
    reducer.order = restored_.gradient_order;
    reducer.learn_order = true;
  }
  reducer.bf16_wire = options_.reduction.wire == "bf16";
  reducer.clip_norm = options_.reduction.clip_norm;
  LOCKSTEP_ASSIGN_OR_RETURN(reducer_,
                            session_->MakeReducer(parameters, reducer));
  return OkStatus();
}

Status TrainLoop::StartInput() {
  data::PrefetcherOptions input;
  input.world = static_cast<uint64_t>(session_->world_size());
  input.start = progress_.cursor;
  input.end_epoch = static_cast<uint64_t>(options_.epochs);
  input.shape = job_->data.shape;
  input.classes = static_cast<uint32_t>(job_->classes);
  input.threads = static_cast<size_t>(options_.data.input_threads);
  LOCKSTEP_ASSIGN_OR_RETURN(
      input_,
      SampleInput::Start(job_->data.train, job_->data.plan, input,
                         runtime::MembershipOf(*session_).own_shards(),
                         input_ ? input_->counters() : task::InputCounters()));
  return OkStatus();
}

Status TrainLoop::Connect() {
  LOCKSTEP_RETURN_IF_ERROR(StartInput());
  SaverOptions saver;
  saver.root = job_->checkpoint_root;
  saver.metadata = job_->facts;
  saver.start_step = restored_.progress.step;
  saver.restored = restored_.from;
  saver.elastic = options_.run.elastic;
  saver_ = std::make_unique<Saver>(session_, reducer_.get(), saver);

  logger_ = std::make_unique<TrainingLogger>(session_, job_->plan,
                                             options_.run.log_every);
  int64_t weights = 0;
  for (size_t i = 0; i < model_->replica()->parameters(); ++i) {
    weights += static_cast<int64_t>(model_->replica()->values(i).size());
  }
  logger_->Begin(
      fmt::format("{} with {} parameters for {} classes of {} images; {} "
                  "training samples, {} for evaluation",
                  options_.model, weights, job_->classes,
                  FormatShape(job_->data.shape), job_->data.train->samples(),
                  job_->data.eval ? job_->data.eval->samples() : 0),
      progress_);
  logger_->Resume(MonotonicNow());
  stop_signal_.emplace();
  return OkStatus();
}

}  // namespace lockstep::worker::trainer
