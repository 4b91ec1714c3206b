// The models of the step benchmarks, the batches they are fed, and a step's
// gradients computed once more in float64 without any communication.
#ifndef LOCKSTEP_TESTS_BENCH_STEP_MODELS_H_
#define LOCKSTEP_TESTS_BENCH_STEP_MODELS_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/data/prefetcher.h"
#include "worker/trainer/replica.h"

namespace lockstep {

// Of the first weights; a rank's batch is drawn by its number and one.
inline constexpr uint64_t kStepSeed = 1;

struct StepShape {
  const char* name = "";
  const char* network = "";  // Of worker/trainer/models.h; empty: ResNet-50.
  worker::data::ImageShape shape;
  int64_t classes = 0;
  uint64_t batch = 0;  // Samples of one rank in a step.
};
struct StepModel : StepShape {
  std::unique_ptr<worker::trainer::Replica> replica;
};

// "shallow": 28x28, conv 1-32, dense 128, dense 10, 64 samples.
// "cnn": 64x64x3, eight residual blocks of 32 to 256 channels, 16 samples.
// "resnet50": 64x64x3, He et al.'s, 25.6 million parameters, 4 samples.
// Equal on all ranks. InvalidArgument for another name.
StatusOr<StepModel> MakeStepModel(const std::string& name);

// Fixed and synthetic; of rank `rank`.
worker::data::Batch MakeStepBatch(const StepModel& model, int rank, int ranks);

// What reduced gradients are compared with: those of (summed loss of all ranks'
// batches / their samples) at the weights that `model` has now, by parameter,
// of another network of its shape.
StatusOr<std::vector<std::vector<double>>> ReferenceGradients(
    const StepModel& model, int ranks);

// LibTorch's, "1.13.1".
std::string TorchVersion();

// How far `gradient` is from `reference`: the largest of all parameters'
// |gradient - reference| / (|reference| + 1e-4 |all references|), of Euclidean
// lengths; infinity for what is no number. REQUIRES: the same sizes.
double GradientError(const std::vector<std::span<const float>>& gradient,
                     const std::vector<std::vector<double>>& reference);

// float32 little-endian, one after the other: the weights in the order of
// model.replica->tensors() to PATH.weights (rank 0 only), the batch's images
// (samples, channels, height, width) as the network sees them, then its labels
// as int32, to PATH.batch-RANK. So peers begin where ours does.
Status ExportStart(const std::string& path, const StepModel& model,
                   const worker::data::Batch& batch, int rank);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_STEP_MODELS_H_
