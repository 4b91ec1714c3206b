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

namespace lockstep::worker::trainer {

struct ModelOptions {
  std::string name = "cnn";
  data::ImageShape shape;
  int64_t classes = 0;
  // For the first weights: equal on all ranks, so that replicas begin equal.
  uint64_t seed = 0;
  // Residual blocks of resnet in each of its four stages.
  int64_t blocks = 1;
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

// Configures this process, before the first replica: how many threads a single
// operation may use, no algorithm whose sums depend on chance, and gradients in
// their places.
void ConfigureTorch(int threads);

class Classifier;
class Replica;
// Makes a replica of the caller's model, with its weights (models.h).
StatusOr<std::unique_ptr<Replica>> MakeReplica(
    std::shared_ptr<Classifier> model, data::ImageShape shape);

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

  // Runs forward and backward for `count` samples from `first`. Does not
  // accumulate: passes each gradient of (summed loss / batch.global_count) to
  // `sink` once, as soon as it is complete, from the last layers to the first.
  // Returns the summed loss. If `places` are given, one per parameter, large
  // gradients may be computed there, and `sink` then gets the place itself; its
  // previous content is lost. REQUIRES: count > 0, first + count <=
  // batch.count.
  StatusOr<double> Backward(const data::Batch& batch, uint64_t first,
                            uint64_t count, const GradientSink& sink,
                            std::span<const std::span<float>> places = {});
  // The whole batch.
  StatusOr<double> Backward(const data::Batch& batch,
                            const GradientSink& sink) {
    return Backward(batch, 0, batch.count, sink);
  }

  StatusOr<EvaluationSums> Evaluate(const data::Batch& batch);

  // Seeds the generator of random numbers for a shard of the global batch in
  // `step`: what is drawn from then on depends on these three alone, not on the
  // rank or on what was drawn before.
  Status SeedShard(uint64_t seed, int64_t step, int shard);
  // The state of the generator of random numbers.
  StatusOr<std::string> SaveRng() const;
  Status RestoreRng(std::string_view bytes);

 private:
  friend StatusOr<std::unique_ptr<Replica>> MakeReplica(
      std::shared_ptr<Classifier> model, data::ImageShape shape);
  class Impl;
  explicit Replica(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_REPLICA_H_
