// A rank's training loop over some communicator, with work and gradients that
// stand for a model's.
#ifndef LOCKSTEP_WORKER_BENCH_SYNTHETIC_TRAINER_H_
#define LOCKSTEP_WORKER_BENCH_SYNTHETIC_TRAINER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "common/base/status.h"
#include "worker/bench/options.h"
#include "worker/bench/synthetic.h"
#include "worker/collective/communicator.h"
#include "worker/runtime/progress.h"

namespace lockstep {

// One thread's. An error breaks it.
class SyntheticTrainer {
 public:
  // A micro-batch computes `turns` turns of the loop. `gradients`: this rank's,
  // all tensors one behind the other, as a framework would have them. Both
  // pointers are borrowed.
  static StatusOr<std::unique_ptr<SyntheticTrainer>> Make(
      Communicator* communicator, const BenchOptions& options, int64_t turns,
      std::span<const float> gradients);

  Status Step();
  // Does one more step: wrong elements of what this rank ends with, of so many
  // ranks over `backend`.
  StatusOr<int64_t> CountWrong(int ranks, std::string_view backend);
  const task::RankCounters& Counters();

 private:
  SyntheticTrainer(const StepBenchOptions& model, int64_t turns,
                   std::span<const float> gradients)
      : model_(model), turns_(turns), gradients_(gradients) {}
  Status Compute();

  const StepBenchOptions model_;
  const int64_t turns_;
  const std::span<const float> gradients_;
  ComputeLoop loop_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Reducer> reducer_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_BENCH_SYNTHETIC_TRAINER_H_
