#include "worker/bench/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/base/clock.h"
#include "worker/runtime/gradients.h"
#include "worker/runtime/stepped_reducer.h"

namespace lockstep::worker::bench {

void ComputeLoop::Run(int64_t turns) {
  float values[kLanes];
  std::copy(std::begin(values_), std::end(values_), values);
  for (int64_t turn = 0; turn < turns; ++turn) {
    for (float& value : values) value = value * 0.9999f + 0.0001f;
  }
  // Keeps the compiler from removing the computation.
  std::copy(values, values + kLanes, std::begin(values_));
}

double ComputeLoop::MeasureRate() {
  const SystemClock clock;
  constexpr int64_t kTurns = 200'000;
  double best = 1e9;
  for (int i = 0; i < 7; ++i) {
    const MonoTime start = clock.Now().mono;
    Run(kTurns);
    best = std::min(best, ToSeconds(clock.Now().mono - start));
  }
  return static_cast<double>(kTurns) / std::max(best, 1e-9);
}

std::vector<runtime::Parameter> SyntheticParameters(uint64_t parameters,
                                                    int tensors) {
  std::vector<runtime::Parameter> result;
  const uint64_t each = parameters / static_cast<uint64_t>(tensors);
  uint64_t left = parameters;
  for (int i = 0; i < tensors; ++i) {
    const uint64_t elements = i + 1 < tensors ? each : left;
    result.push_back({fmt::format("tensor{}", i), elements});
    left -= elements;
  }
  return result;
}

std::vector<float> SyntheticGradients(const StepBenchOptions& model, int rank) {
  std::vector<float> gradients;
  gradients.reserve(model.parameters);
  for (const runtime::Parameter& tensor :
       SyntheticParameters(model.parameters, model.tensors)) {
    for (size_t i = 0; i < tensor.elements; ++i) {
      gradients.push_back(SyntheticGradient(rank, i));
    }
  }
  return gradients;
}

uint64_t CountWrongGradients(std::span<const float> reduced, int ranks,
                             int accumulate, bool bf16,
                             std::string_view backend) {
  double expected[3] = {};
  for (int rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < 3; ++i) {
      expected[i] += accumulate * SyntheticGradient(rank, i);
    }
  }
  // Of sums of positive numbers; those of float32 are whole and below 2^24.
  const double tolerance = bf16 ? runtime::Bfloat16WireError(backend) : 0;
  uint64_t wrong = 0;
  for (size_t i = 0; i < reduced.size(); ++i) {
    const double want = expected[i % 3];
    // NaN is wrong, too.
    if (!(std::abs(reduced[i] - want) <= tolerance * want)) ++wrong;
  }
  return wrong;
}

StatusOr<std::unique_ptr<SyntheticTrainer>> SyntheticTrainer::Make(
    collective::Communicator* communicator, const BenchOptions& options,
    ComputePart compute, std::span<const float> gradients) {
  std::unique_ptr<SyntheticTrainer> trainer(
      new SyntheticTrainer(options.step, std::move(compute), gradients));
  LOCKSTEP_ASSIGN_OR_RETURN(trainer->progress_,
                            runtime::Progress::Create("", 0, 0));
  runtime::SteppedReducerOptions stepped;
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
  runtime::StepInputs inputs;
  inputs.samples = model_.accumulate;
  inputs.loss_sum = 1;
  inputs.position = static_cast<uint64_t>(reducer_->step());
  LOCKSTEP_ASSIGN_OR_RETURN(const runtime::StepResult result,
                            reducer_->Finish(inputs));
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
  constexpr double kForward = 1.0 / 3;
  const auto share = [&](size_t left) {
    return 1 - (1 - kForward) * static_cast<double>(left) /
                   static_cast<double>(tensors);
  };
  for (int batch = 1; batch <= model_.accumulate; ++batch) {
    compute_(0, kForward);
    size_t begin = gradients_.size();
    for (size_t i = tensors; i-- > 0;) {
      compute_(share(i + 1), share(i));
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

}  // namespace lockstep::worker::bench
