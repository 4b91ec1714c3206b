#include "worker/bench/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/base/clock.h"
#include "worker/runtime/gradients.h"

namespace lockstep {

void ComputeLoop::Run(int64_t turns) {
  float values[kLanes];
  std::copy(std::begin(values_), std::end(values_), values);
  for (int64_t turn = 0; turn < turns; ++turn) {
    for (float& value : values) value = value * 0.9999f + 0.0001f;
  }
  // What is kept must be computed.
  std::copy(values, values + kLanes, std::begin(values_));
}

double ComputeLoop::MeasureRate() {
  const SystemClock clock;
  constexpr int64_t kTurns = 200'000;
  double best = 1e9;
  for (int i = 0; i < 7; ++i) {
    const MonoTime start = clock.Now().mono;
    Run(kTurns);
    best = std::min(best, ToSeconds(clock.Now().mono - start));
  }
  return static_cast<double>(kTurns) / std::max(best, 1e-9);
}

std::vector<Parameter> SyntheticParameters(uint64_t parameters, int tensors) {
  std::vector<Parameter> result;
  const uint64_t each = parameters / static_cast<uint64_t>(tensors);
  uint64_t left = parameters;
  for (int i = 0; i < tensors; ++i) {
    const uint64_t elements = i + 1 < tensors ? each : left;
    result.push_back({fmt::format("tensor{}", i), elements});
    left -= elements;
  }
  return result;
}

uint64_t CountWrongGradients(std::span<const float> reduced, int ranks,
                             int accumulate, bool bf16,
                             std::string_view backend) {
  double expected[3] = {};
  for (int rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < 3; ++i) {
      expected[i] += accumulate * SyntheticGradient(rank, i);
    }
  }
  // Of sums of positive numbers; those of float32 are whole and below 2^24.
  const double tolerance = bf16 ? Bfloat16WireError(backend) : 0;
  uint64_t wrong = 0;
  for (size_t i = 0; i < reduced.size(); ++i) {
    const double want = expected[i % 3];
    // NaN is wrong, too.
    if (!(std::abs(reduced[i] - want) <= tolerance * want)) ++wrong;
  }
  return wrong;
}

}  // namespace lockstep
