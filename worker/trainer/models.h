// The networks of lockstep-train. Only models.cc and replica.cc, which include
// LibTorch, include this.
//
// No layer keeps batch statistics: GroupNorm normalizes one sample at a time.
// So replicas stay equal, and n ranks with b samples each compute the same as
// one rank with n * b. Dropout is not used. Parameters have PyTorch's
// names ("conv1.weight"), so a PyTorch model with the same modules loads them.
#ifndef LOCKSTEP_WORKER_TRAINER_MODELS_H_
#define LOCKSTEP_WORKER_TRAINER_MODELS_H_

#include <torch/torch.h>

#include <memory>

#include "common/base/status.h"
#include "worker/trainer/replica.h"

namespace lockstep::worker::trainer {

class Classifier : public torch::nn::Module {
 public:
  // Images (N, channels, height, width) to logits (N, classes).
  virtual torch::Tensor forward(torch::Tensor images) = 0;
};

// With fresh weights, drawn from torch's default generator. InvalidArgument
// for an unknown name or images too small for the model. May throw what
// LibTorch throws.
StatusOr<std::shared_ptr<Classifier>> MakeClassifier(
    const ModelOptions& options);

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_MODELS_H_
