// For tests of the reducer.
#ifndef LOCKSTEP_WORKER_RUNTIME_REDUCER_TEST_UTIL_H_
#define LOCKSTEP_WORKER_RUNTIME_REDUCER_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "worker/runtime/stepped_reducer.h"
#include "worker/runtime/testing.h"

namespace lockstep::worker::runtime {

inline const std::vector<Parameter> kParameters = {
    {"conv.weight", 1000}, {"conv.bias", 10}, {"fc.weight", 3000}};

// One rank: what Session puts together.
struct ReducingRank {
  ReducingRank(
      FakeGroup* group, int rank, SteppedReducerOptions options = {},
      collective::ProgressMode mode = collective::ProgressMode::kThread)
      : ReducingRank(group->Make(rank, mode), std::move(options)) {}
  ReducingRank(std::unique_ptr<collective::Communicator> over,
               SteppedReducerOptions options = {})
      : communicator(std::move(over)) {
    progress = *Progress::Create("", communicator->rank(), 1);
    options.communicator = communicator.get();
    options.progress = progress.get();
    options.reducer.bucket_bytes = 4096;
    options.reducer.state_hash_interval = 0;
    options.operation_timeout = std::chrono::seconds(10);
    auto made = MakeSteppedReducer(kParameters, std::move(options));
    EXPECT_TRUE(made.ok()) << made.status();
    reducer = *std::move(made);
  }
  void Fill(float value) {
    for (size_t i = 0; i < reducer->parameters(); ++i) {
      for (float& g : reducer->gradient(i)) g = value;
    }
  }
  Duration Seconds(task::RankPhase phase) const {
    return lockstep::Seconds(
        progress->counters().phase_seconds[static_cast<size_t>(phase)]);
  }

  Duration Busy() const {
    return lockstep::Seconds(progress->counters().allreduce_busy_seconds);
  }

  // A whole step with these gradients, ready in this order.
  StepResult Step(const std::vector<std::vector<float>>& gradients,
                  const std::vector<size_t>& order) {
    for (const size_t i : order) {
      EXPECT_TRUE(reducer->Put(i, gradients[i]).ok());
    }
    StatusOr<StepResult> result = reducer->Finish({});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : StepResult();
  }

  std::unique_ptr<collective::Communicator> communicator;
  std::unique_ptr<Progress> progress;
  std::unique_ptr<Reducer> reducer;
};

// The gradients of all parameters: numbers of many sizes and both signs.
inline std::vector<std::vector<float>> RandomGradients(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> gradients;
  for (const Parameter& parameter : kParameters) {
    gradients.emplace_back(parameter.elements);
    for (float& g : gradients.back()) {
      g = normal(random) * std::exp(normal(random));
    }
  }
  return gradients;
}

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_REDUCER_TEST_UTIL_H_
