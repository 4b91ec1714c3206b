// A step's gradients, computed once more in float64 and without any
// communication: what the reduced ones are compared with.
#ifndef LOCKSTEP_TESTS_BENCH_STEP_REFERENCE_H_
#define LOCKSTEP_TESTS_BENCH_STEP_REFERENCE_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "tests/bench/step_models.h"

namespace lockstep {

class StepReference {
 public:
  // The network that MakeStepModel makes of this name.
  static StatusOr<std::unique_ptr<StepReference>> Make(const std::string& name);
  ~StepReference();

  // The gradients of (summed loss of all ranks' batches / their samples) at the
  // weights that `model` has now, by parameter.
  StatusOr<std::vector<std::vector<double>>> Gradients(const StepModel& model,
                                                       int ranks);

 private:
  class Impl;
  explicit StepReference(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

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
                   const Batch& batch, int rank);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_STEP_REFERENCE_H_
