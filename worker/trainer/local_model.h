// The model of this rank with its optimizer: computes gradients, and applies
// the reduced ones.
#ifndef LOCKSTEP_WORKER_TRAINER_LOCAL_MODEL_H_
#define LOCKSTEP_WORKER_TRAINER_LOCAL_MODEL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "worker/runtime/reducer.h"
#include "worker/trainer/faults.h"
#include "worker/trainer/optimizer.h"
#include "worker/trainer/replica.h"

namespace lockstep::worker::trainer {

// Thread-compatible.
class LocalModel {
 public:
  // `faults` is borrowed. `batch_size`: samples of one backward pass.
  LocalModel(std::unique_ptr<Replica> replica,
             std::unique_ptr<Optimizer> optimizer, const Faults* faults,
             int64_t batch_size);

  Replica* replica() { return replica_.get(); }
  Optimizer* optimizer() { return optimizer_.get(); }

  // Forward and backward of the batch. Each gradient goes to `reducer` as soon
  // as it is there. Returns the summed loss.
  StatusOr<double> ComputeGradients(const data::Batch& batch, int64_t step,
                                    runtime::Reducer* reducer);
  // Runs the optimizer with the gradients of `reducer`.
  void Apply(runtime::Reducer* reducer, double learning_rate,
             double gradient_scale);
  uint64_t StateHash();

 private:
  Status TakeGradient(int64_t step, size_t i, std::span<const float> gradient,
                      bool last, runtime::Reducer* reducer);

  const std::unique_ptr<Replica> replica_;
  const std::unique_ptr<Optimizer> optimizer_;
  const Faults& faults_;
  const uint64_t batch_size_;
  std::vector<std::span<const float>> gradients_;  // For the optimizer.
  std::vector<std::span<float>> places_;           // For the backward.
};

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_LOCAL_MODEL_H_
