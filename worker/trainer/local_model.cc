#include "worker/trainer/local_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "worker/checkpoint/safetensors.h"
#include "worker/trainer/train_state.h"

namespace lockstep::worker::trainer {

LocalModel::LocalModel(std::unique_ptr<Replica> replica,
                       std::unique_ptr<Optimizer> optimizer,
                       const Faults* faults, int64_t batch_size)
    : replica_(std::move(replica)),
      optimizer_(std::move(optimizer)),
      faults_(*faults),
      batch_size_(static_cast<uint64_t>(batch_size)) {}

StatusOr<double> LocalModel::ComputeGradients(const data::Batch& batch,
                                              int64_t step,
                                              runtime::Reducer* reducer) {
  if (batch.count == 0) {
    reducer->ZeroGradients();
    return 0.0;
  }
  // Runs as many passes as needed. Only gradients of the last pass are sent
  // out; with a single pass they may be computed in place.
  double loss_sum = 0;
  std::span<const std::span<float>> places;
  if (batch.count <= batch_size_) {
    places_.clear();
    for (size_t i = 0; i < reducer->parameters(); ++i) {
      places_.push_back(reducer->gradient(i));
    }
    places = places_;
  }
  for (uint64_t first = 0; first < batch.count; first += batch_size_) {
    const uint64_t count = std::min(batch_size_, batch.count - first);
    const bool last = first + count == batch.count;
    LOCKSTEP_ASSIGN_OR_RETURN(
        const double loss, replica_->Backward(
                               batch, first, count,
                               [&](size_t i, std::span<const float> gradient) {
                                 return TakeGradient(step, i, gradient, last,
                                                     reducer);
                               },
                               places));
    loss_sum += loss;
  }
  return loss_sum;
}

Status LocalModel::TakeGradient(int64_t step, size_t i,
                                std::span<const float> gradient, bool last,
                                runtime::Reducer* reducer) {
  if (!last) return reducer->Add(i, gradient);
  if (i != 0 || !faults_.SpoilsGradient(step)) {
    return reducer->Put(i, gradient);
  }
  std::vector<float> spoilt(gradient.begin(), gradient.end());
  spoilt[0] = std::numeric_limits<float>::quiet_NaN();
  return reducer->Put(i, spoilt);
}

void LocalModel::Apply(runtime::Reducer* reducer, double learning_rate,
                       double gradient_scale) {
  gradients_.clear();
  for (size_t i = 0; i < reducer->parameters(); ++i) {
    gradients_.emplace_back(reducer->gradient(i));
  }
  optimizer_->Step(learning_rate, gradients_, gradient_scale);
}

uint64_t LocalModel::StateHash() {
  return checkpoint::StateHash(StateTensors(*replica_, optimizer_.get()));
}

}  // namespace lockstep::worker::trainer
