#include "tests/cluster/step_model.h"

#include <fmt/format.h>

#include <cstring>

namespace lockstep {

float SampleGradient(int64_t sample, size_t element) {
  // SplitMix64's mixing.
  uint64_t x = static_cast<uint64_t>(sample) * 0x9e3779b97f4a7c15 +
               static_cast<uint64_t>(element) * 0xd1342543de82ef95;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return static_cast<float>(static_cast<int>((x ^ (x >> 31)) % 7) - 3);
}

void AddSample(int64_t sample, size_t first, std::span<float> gradient) {
  for (size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] += SampleGradient(sample, first + i);
  }
}

std::vector<float> ExpectedWeights(int64_t steps, int64_t batch,
                                   const std::set<int64_t>& skipped) {
  std::vector<float> weights(kStepElements, 0.0F);
  for (int64_t step = 1; step <= steps; ++step) {
    if (skipped.contains(step)) continue;
    for (int64_t k = 0; k < batch; ++k) {
      AddSample((step - 1) * batch + k, 0, weights);
    }
  }
  return weights;
}

std::string HashWeights(std::span<const float> weights) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a.
  for (const float weight : weights) {
    uint32_t bits = 0;
    std::memcpy(&bits, &weight, sizeof(bits));
    hash = (hash ^ bits) * 0x100000001b3;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace lockstep
