// Work, gradients and a training loop that stand for a model's.
#ifndef LOCKSTEP_WORKER_BENCH_SYNTHETIC_H_
#define LOCKSTEP_WORKER_BENCH_SYNTHETIC_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "worker/bench/options.h"
#include "worker/collective/communicator.h"
#include "worker/runtime/progress.h"
#include "worker/runtime/reducer.h"

namespace lockstep::worker::bench {

// Multiplies and adds in registers, without memory and calls, so other
// processes do not change its time if it has a core of its own.
class ComputeLoop {
 public:
  static constexpr int kLanes = 32;
  static constexpr double kFlopsPerTurn = 2.0 * kLanes;

  void Run(int64_t turns);
  // Returns iterations per second, the best of a few tries; takes about 20 ms.
  double MeasureRate();

 private:
  float values_[kLanes] = {};
};

// The model's tensors: of equal size, the last one takes what is left.
std::vector<runtime::Parameter> SyntheticParameters(uint64_t parameters,
                                                    int tensors);

// Rank `rank`'s gradient of every micro-batch: element i of each tensor. Small
// integers, exact in bfloat16.
inline float SyntheticGradient(int rank, size_t i) {
  return static_cast<float>(rank % 4 + 1) + static_cast<float>(i % 3);
}

// Returns the number of elements of a tensor's reduced gradient that differ
// from the expected sum over `ranks` of `accumulate` times theirs. Allows the
// rounding of `backend` if `bf16` is set.
uint64_t CountWrongGradients(std::span<const float> reduced, int ranks,
                             int accumulate, bool bf16,
                             std::string_view backend);

// Does the part of a micro-batch's computing between two shares of it, 0 to 1.
using ComputePart = std::function<void(double from, double to)>;

// All tensors of a rank's gradient, one behind the other.
std::vector<float> SyntheticGradients(const StepBenchOptions& model, int rank);

// A rank's training loop over some communicator. One thread's. An error breaks
// it.
class SyntheticTrainer {
 public:
  // `gradients`: this rank's, as a framework would have them. The communicator
  // and they are borrowed.
  static StatusOr<std::unique_ptr<SyntheticTrainer>> Make(
      collective::Communicator* communicator, const BenchOptions& options,
      ComputePart compute, std::span<const float> gradients);

  Status Step();
  // Runs one more step and returns the number of wrong elements on this rank,
  // of `ranks` ranks over `backend`.
  StatusOr<int64_t> CountWrong(int ranks, std::string_view backend);
  const task::RankCounters& Counters();

 private:
  SyntheticTrainer(const StepBenchOptions& model, ComputePart compute,
                   std::span<const float> gradients)
      : model_(model), compute_(std::move(compute)), gradients_(gradients) {}
  Status Compute();

  const StepBenchOptions model_;
  const ComputePart compute_;
  const std::span<const float> gradients_;
  std::unique_ptr<runtime::Progress> progress_;
  std::unique_ptr<runtime::Reducer> reducer_;
};

}  // namespace lockstep::worker::bench

#endif  // LOCKSTEP_WORKER_BENCH_SYNTHETIC_H_
