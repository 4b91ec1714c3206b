// The models of the step benchmarks, and the batches they are fed.
#ifndef LOCKSTEP_TESTS_BENCH_STEP_MODELS_H_
#define LOCKSTEP_TESTS_BENCH_STEP_MODELS_H_

#include <memory>
#include <string>

#include "common/base/status.h"
#include "worker/data/prefetcher.h"
#include "worker/trainer/replica.h"

namespace lockstep {

// Of the first weights; a rank's batch is drawn by its number and one.
inline constexpr uint64_t kStepSeed = 1;

struct StepModel {
  std::unique_ptr<Replica> replica;
  ImageShape shape;
  int64_t classes = 0;
  uint64_t batch = 0;  // Samples of one rank in a step.
};

// "shallow": 28x28, conv 1-32, dense 128, dense 10, 64 samples.
// "cnn": 64x64x3, eight residual blocks of 32 to 256 channels, 16 samples.
// "resnet50": 64x64x3, He et al.'s, 25.6 million parameters, 4 samples.
// Equal on all ranks. InvalidArgument for another name.
StatusOr<StepModel> MakeStepModel(const std::string& name, int rank);

// Only the network, with weights of its own. May throw what LibTorch throws.
StatusOr<std::shared_ptr<Classifier>> MakeStepNetwork(const std::string& name);

// Fixed and synthetic; of rank `rank`.
Batch MakeStepBatch(const StepModel& model, int rank, int ranks);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_STEP_MODELS_H_
