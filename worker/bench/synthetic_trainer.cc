#include "worker/bench/synthetic_trainer.h"

#include "worker/runtime/stepped_reducer.h"

namespace lockstep {

StatusOr<std::unique_ptr<SyntheticTrainer>> SyntheticTrainer::Make(
    Communicator* communicator, const BenchOptions& options, int64_t turns,
    std::span<const float> gradients) {
  std::unique_ptr<SyntheticTrainer> trainer(
      new SyntheticTrainer(options.step, turns, gradients));
  LOCKSTEP_ASSIGN_OR_RETURN(trainer->progress_, Progress::Create("", 0, 0));
  SteppedReducerOptions stepped;
  stepped.reducer.bucket_bytes = options.step.bucket_bytes;
  stepped.reducer.bf16_wire = options.step.bf16_wire;
  stepped.reducer.state_hash_interval = 0;
  stepped.operation_timeout = options.timeout;
  stepped.communicator = communicator;
  stepped.progress = trainer->progress_.get();
  LOCKSTEP_ASSIGN_OR_RETURN(
      trainer->reducer_,
      MakeSteppedReducer(
          SyntheticParameters(options.step.parameters, options.step.tensors),
          stepped));
  return trainer;
}

Status SyntheticTrainer::Step() {
  LOCKSTEP_RETURN_IF_ERROR(Compute());
  StepInputs inputs;
  inputs.samples = model_.accumulate;
  inputs.loss_sum = 1;
  inputs.position = static_cast<uint64_t>(reducer_->step());
  LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result, reducer_->Finish(inputs));
  if (!result.apply) return Internal("a gradient was not finite");
  return reducer_->Commit().status();
}

StatusOr<int64_t> SyntheticTrainer::CountWrong(int ranks,
                                               std::string_view backend) {
  LOCKSTEP_RETURN_IF_ERROR(Step());
  uint64_t wrong = 0;
  for (size_t i = 0; i < reducer_->parameters(); ++i) {
    wrong += CountWrongGradients(reducer_->gradient(i), ranks,
                                 model_.accumulate, model_.bf16_wire, backend);
  }
  return static_cast<int64_t>(wrong);
}

const task::RankCounters& SyntheticTrainer::Counters() {
  progress_->Publish();
  return progress_->counters();
}

// Gradients become ready evenly over the backward pass, two thirds of it all,
// from the last tensor to the first.
Status SyntheticTrainer::Compute() {
  progress_->Enter(task::RankPhase::kCompute);
  const size_t tensors = reducer_->parameters();
  const int64_t forward = turns_ / 3;
  const int64_t each = (turns_ - forward) / static_cast<int64_t>(tensors);
  for (int batch = 1; batch <= model_.accumulate; ++batch) {
    loop_.Run(forward);
    size_t begin = gradients_.size();
    for (size_t i = tensors; i-- > 0;) {
      loop_.Run(each);
      const size_t size = reducer_->gradient(i).size();
      begin -= size;
      const std::span<const float> gradient = gradients_.subspan(begin, size);
      LOCKSTEP_RETURN_IF_ERROR(batch < model_.accumulate
                                   ? reducer_->Add(i, gradient)
                                   : reducer_->Put(i, gradient));
    }
  }
  progress_->Enter(task::RankPhase::kOther);
  return OkStatus();
}

}  // namespace lockstep
