// What TrainLoop does before its first step.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "worker/checkpoint/writer.h"
#include "worker/trainer/flops.h"
#include "worker/trainer/restore.h"
#include "worker/trainer/train_loop.h"

namespace lockstep {

Status TrainLoop::OpenData() {
  LOCKSTEP_ASSIGN_OR_RETURN(data_,
                            OpenJobData(fs_, options_, session_->world_size()));
  plan_.epochs = options_.epochs;
  plan_.steps_per_epoch = static_cast<int64_t>(data_->plan.steps_per_epoch());
  plan_.global_batch =
      options_.batch_size * options_.accumulate * session_->world_size();
  plan_.total_steps = plan_.epochs * plan_.steps_per_epoch;
  if (options_.max_steps > 0) {
    plan_.total_steps = std::min(plan_.total_steps, options_.max_steps);
  }
  output_ = options_.output.empty() ? session_->identity().output_directory
                                    : options_.output;
  checkpoint_root_ = options_.checkpoint_dir;
  if (checkpoint_root_.empty() && !output_.empty()) {
    checkpoint_root_ = JoinPath(output_, "checkpoints");
  }
  // Now, and not when the model is to be written.
  if (session_->chief() && !output_.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::MakeDirsDurable(fs_, output_));
  }
  schedule_.learning_rate = options_.learning_rate;
  if (options_.scale_lr == "linear") {
    schedule_.learning_rate *= static_cast<double>(plan_.global_batch) /
                               static_cast<double>(options_.reference_batch);
  }
  schedule_.warmup_steps = options_.warmup_steps;
  if (options_.lr_schedule == "cosine") {
    schedule_.cosine_steps = plan_.total_steps;
  }
  return OkStatus();
}

Status TrainLoop::Form() {
  facts_ = ConfigOf(options_);
  facts_.merge(ConfigOf(*data_));
  LOCKSTEP_RETURN_IF_ERROR(session_->Form(facts_));
  // Here and not before: only rank 0 need read all labels.
  std::string classes = std::to_string(options_.classes);
  if (options_.classes == 0 && session_->chief()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t counted,
                              CountClasses(*data_->train));
    classes = std::to_string(counted);
  }
  LOCKSTEP_RETURN_IF_ERROR(session_->Broadcast(&classes));
  classes_ = std::stoll(classes);
  facts_["classes"] = classes;
  return OkStatus();
}

Status TrainLoop::MakeReplica() {
  ModelOptions model;
  model.name = options_.model;
  model.shape = data_->shape;
  model.classes = classes_;
  model.seed = options_.seed;
  LOCKSTEP_ASSIGN_OR_RETURN(replica_, Replica::Create(model, session_->rank()));
  if (session_->chief()) {
    session_->Report(kFlopsPerSampleValue, FlopsPerSample(model));
  }
  OptimizerOptions optimizer;
  optimizer.kind = options_.optimizer;
  optimizer.momentum = options_.momentum;
  optimizer.weight_decay = options_.weight_decay;
  std::vector<OptimizedParameter> parameters;
  for (size_t i = 0; i < replica_->parameters(); ++i) {
    parameters.push_back({replica_->tensors()[i].name, replica_->values(i)});
  }
  LOCKSTEP_ASSIGN_OR_RETURN(optimizer_,
                            MakeOptimizer(optimizer, std::move(parameters)));
  return OkStatus();
}

Status TrainLoop::RestoreState() {
  const MonoTime began = MonotonicNow();
  LOCKSTEP_ASSIGN_OR_RETURN(const Restored restored,
                            Restore(fs_, session_, checkpoint_root_, facts_,
                                    replica_.get(), optimizer_.get()));
  progress_ = restored.progress;
  gradient_order_ = restored.gradient_order;
  restored_from_ = restored.from;
  if (restored_from_) {
    session_->progress()->CountCheckpointTime(task::CheckpointPhase::kRestore,
                                              MonotonicNow() - began);
  }
  return OkStatus();
}

// What goes on from the state: input, reducer, checkpoints.
Status TrainLoop::Connect() {
  std::vector<Parameter> parameters;
  int64_t weights = 0;
  for (size_t i = 0; i < replica_->parameters(); ++i) {
    const size_t elements = replica_->values(i).size();
    parameters.push_back({replica_->tensors()[i].name, elements});
    weights += static_cast<int64_t>(elements);
  }
  ReducerOptions reducer;
  reducer.start_step = progress_.step;
  reducer.total_steps = plan_.total_steps;
  reducer.global_batch = plan_.global_batch;
  reducer.order = gradient_order_;
  reducer.learn_order = true;
  reducer.bf16_wire = options_.wire == "bf16";
  reducer.clip_norm = options_.clip_norm;
  LOCKSTEP_ASSIGN_OR_RETURN(reducer_,
                            session_->MakeReducer(parameters, reducer));

  PrefetcherOptions input;
  input.rank = static_cast<uint64_t>(session_->rank());
  input.world = static_cast<uint64_t>(session_->world_size());
  input.start = progress_.cursor;
  input.end_epoch = static_cast<uint64_t>(options_.epochs);
  input.shape = data_->shape;
  input.classes = static_cast<uint32_t>(classes_);
  input.threads = static_cast<size_t>(options_.input_threads);
  input_depth_ = input.depth;
  LOCKSTEP_ASSIGN_OR_RETURN(
      input_, Prefetcher::Start(data_->train, data_->plan, input));

  SaverOptions saver;
  saver.root = checkpoint_root_;
  saver.metadata = facts_;
  saver.start_step = progress_.step;
  saver.restored = restored_from_;
  saver_ = std::make_unique<Saver>(session_, reducer_.get(), saver);

  logger_ =
      std::make_unique<TrainingLogger>(session_, plan_, options_.log_every);
  logger_->Begin(
      fmt::format("{} with {} parameters for {} classes of {} images; {} "
                  "samples, {} held out",
                  options_.model, weights, classes_, FormatShape(data_->shape),
                  data_->train->samples(),
                  data_->eval ? data_->eval->samples() : 0),
      progress_);
  logger_->Resume(MonotonicNow());
  stop_signal_.emplace();
  return OkStatus();
}

}  // namespace lockstep
