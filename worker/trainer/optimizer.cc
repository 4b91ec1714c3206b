#include "worker/trainer/optimizer.h"

#include <cmath>
#include <utility>

namespace lockstep::worker::trainer {
namespace {

// torch.optim.SGD: g += wd * p; v = mu * v + g; p -= lr * v. Its first v is g,
// as it is here, where v begins as zero.
class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options,
      std::vector<OptimizedParameter> parameters)
      : Optimizer(std::move(parameters)),
        momentum_(static_cast<float>(options.momentum)),
        decay_(static_cast<float>(options.weight_decay)) {
    if (momentum_ != 0) AddState("momentum");
  }

  void Step(double learning_rate,
            std::span<const std::span<const float>> gradients,
            double scale) override {
    const auto rate = static_cast<float>(learning_rate);
    const auto by = static_cast<float>(scale);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (momentum_ != 0) {
        Update(parameters_[i].value, gradients[i], state_[i].value, rate, by);
      } else {
        Update(parameters_[i].value, gradients[i], rate, by);
      }
    }
    ++*steps_;
  }

 private:
  void Update(std::span<float> value, std::span<const float> gradient,
              std::span<float> velocity, float rate, float by) const {
    float* __restrict p = value.data();
    float* __restrict v = velocity.data();
    const float* __restrict g = gradient.data();
    const size_t n = value.size();
    for (size_t k = 0; k < n; ++k) {
      v[k] = momentum_ * v[k] + (g[k] * by + decay_ * p[k]);
      p[k] -= rate * v[k];
    }
  }
  void Update(std::span<float> value, std::span<const float> gradient,
              float rate, float by) const {
    float* __restrict p = value.data();
    const float* __restrict g = gradient.data();
    const size_t n = value.size();
    for (size_t k = 0; k < n; ++k) {
      p[k] -= rate * (g[k] * by + decay_ * p[k]);
    }
  }

  const float momentum_;
  const float decay_;
};

// torch.optim.Adam (Kingma and Ba, algorithm 1, with L2 in the gradient).
class Adam final : public Optimizer {
 public:
  Adam(const OptimizerOptions& options,
       std::vector<OptimizedParameter> parameters)
      : Optimizer(std::move(parameters)),
        options_(options),
        first_(AddState("exp_avg")),
        second_(AddState("exp_avg_sq")) {}

  void Step(double learning_rate,
            std::span<const std::span<const float>> gradients,
            double scale) override {
    const auto t = static_cast<double>(++*steps_);
    const double correction1 = 1 - std::pow(options_.beta1, t);
    const double correction2 = 1 - std::pow(options_.beta2, t);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      Update(parameters_[i].value, gradients[i], state_[first_ + i].value,
             state_[second_ + i].value,
             static_cast<float>(learning_rate / correction1),
             static_cast<float>(1 / std::sqrt(correction2)),
             static_cast<float>(scale));
    }
  }

 private:
  void Update(std::span<float> value, std::span<const float> gradients,
              std::span<float> first, std::span<float> second, float rate,
              float scale, float by) const {
    const auto beta1 = static_cast<float>(options_.beta1);
    const auto beta2 = static_cast<float>(options_.beta2);
    const auto epsilon = static_cast<float>(options_.epsilon);
    const auto decay = static_cast<float>(options_.weight_decay);
    float* __restrict p = value.data();
    float* __restrict m = first.data();
    float* __restrict v = second.data();
    const float* __restrict g = gradients.data();
    const size_t n = value.size();
    for (size_t k = 0; k < n; ++k) {
      const float gradient = g[k] * by + decay * p[k];
      m[k] = beta1 * m[k] + (1 - beta1) * gradient;
      v[k] = beta2 * v[k] + (1 - beta2) * gradient * gradient;
      p[k] -= rate * m[k] / (std::sqrt(v[k]) * scale + epsilon);
    }
  }

  const OptimizerOptions options_;
  const size_t first_;
  const size_t second_;
};

}  // namespace

size_t Optimizer::AddState(const std::string& name) {
  const size_t index = state_.size();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    memory_.emplace_back(parameters_[i].value.size());
    state_.push_back({"optimizer." + name + "." + parameters_[i].name, i,
                      std::span<float>(memory_.back())});
  }
  return index;
}

StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
    const OptimizerOptions& options,
    std::vector<OptimizedParameter> parameters) {
  std::unique_ptr<Optimizer> optimizer;
  if (options.kind == "sgd") {
    optimizer = std::make_unique<Sgd>(options, std::move(parameters));
  } else if (options.kind == "adam") {
    optimizer = std::make_unique<Adam>(options, std::move(parameters));
  } else {
    return InvalidArgument("unknown optimizer '{}': use sgd or adam",
                           options.kind);
  }
  return optimizer;
}

}  // namespace lockstep::worker::trainer
