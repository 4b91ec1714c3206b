// One rank's copy of the model. LibTorch stays behind this header: others see
// numbers in memory, and errors instead of exceptions.
//
// Pixels 0..255 become -1..1. The loss is cross-entropy.
#ifndef LOCKSTEP_WORKER_TRAINER_REPLICA_H_
#define LOCKSTEP_WORKER_TRAINER_REPLICA_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/tensor_view.h"
#include "worker/data/image.h"
#include "worker/data/prefetcher.h"

namespace lockstep {

struct ModelOptions {
  std::string name = "cnn";
  ImageShape shape;
  int64_t classes = 0;
  // Of the first weights: equal on all ranks, so that replicas begin equal.
  uint64_t seed = 0;
};

// Sums, so that those of all ranks can be added.
struct EvaluationSums {
  uint64_t samples = 0;
  uint64_t correct = 0;
  double loss = 0;
};

// Takes the gradient of parameter `i`, which lies at `gradient` only during
// the call.
using GradientSink =
    std::function<Status(size_t i, std::span<const float> gradient)>;

// Of this process, before the first replica: how many threads a single
// operation may use, and no algorithm whose sums depend on chance.
void ConfigureTorch(int threads);

// Thread-compatible.
class Replica {
 public:
  // Draws weights by `seed`; the generator of random numbers is then seeded by
  // (seed, rank), so that ranks draw differently.
  static StatusOr<std::unique_ptr<Replica>> Create(const ModelOptions& options,
                                                   int rank);
  ~Replica();

  // The parameters, in place, with PyTorch's names, in the order in which the
  // forward pass uses them.
  const std::vector<checkpoint::TensorView>& tensors() const;
  size_t parameters() const { return tensors().size(); }
  std::span<float> values(size_t i);

  // Forward and backward. Adds nothing: hands each gradient of (summed loss /
  // batch.global_count) to `sink` once, as soon as it is complete, which is
  // from the last layers to the first. Returns the summed loss.
  // REQUIRES: batch.count > 0.
  StatusOr<double> Backward(const Batch& batch, const GradientSink& sink);

  StatusOr<EvaluationSums> Evaluate(const Batch& batch);

  // The state of the generator of random numbers.
  StatusOr<std::string> SaveRng() const;
  Status RestoreRng(std::string_view bytes);

 private:
  class Impl;
  explicit Replica(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_REPLICA_H_
