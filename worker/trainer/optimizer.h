// Turns gradients into updates, in one pass over each parameter. PURE, no
// LibTorch: SGD and Adam with PyTorch's formulas, in an order of operations
// that gives the same result on every rank. All state is visible, so a
// checkpoint can hold it.
#ifndef LOCKSTEP_WORKER_TRAINER_OPTIMIZER_H_
#define LOCKSTEP_WORKER_TRAINER_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace lockstep::worker::trainer {

// Lies outside, where it must stay as long as the optimizer.
struct OptimizedParameter {
  std::string name;
  std::span<float> value;
};

// State of the optimizer for one parameter: "momentum", "exp_avg" ...
struct OptimizerState {
  std::string name;  // "optimizer.momentum.conv1.weight"
  size_t parameter;  // Its index.
  std::span<float> value;
};

struct OptimizerOptions {
  std::string kind = "sgd";  // Or "adam".
  double momentum = 0;       // For SGD.
  double weight_decay = 0;   // L2: adds weight_decay * value to the gradient.
  double beta1 = 0.9;        // For Adam, as the next two.
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

// Thread-compatible.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Applies the gradients, times `scale`, once.
  // REQUIRES: one for each parameter, of its size, and apart from it.
  virtual void Step(double learning_rate,
                    std::span<const std::span<const float>> gradients,
                    double scale = 1) = 0;

  // Times Step was called, restored ones counted: Adam's t.
  int64_t steps() const { return *steps_; }
  // For a checkpoint: the state, in place, and where steps() lies.
  const std::vector<OptimizerState>& state() const { return state_; }
  int64_t* mutable_steps() { return steps_.get(); }

 protected:
  explicit Optimizer(std::vector<OptimizedParameter> parameters)
      : parameters_(std::move(parameters)) {}
  // Zeroed memory for one more number per weight; index into state() of
  // parameter 0.
  size_t AddState(const std::string& name);

  const std::vector<OptimizedParameter> parameters_;
  std::vector<OptimizerState> state_;
  const std::unique_ptr<int64_t> steps_ = std::make_unique<int64_t>(0);

 private:
  std::vector<std::vector<float>> memory_;
};

// InvalidArgument for another kind.
StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
    const OptimizerOptions& options,
    std::vector<OptimizedParameter> parameters);

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_OPTIMIZER_H_
