// A model whose training can be told in advance, to the bit. Pure.
//
// Every sample adds a whole number between -3 and 3, drawn by its own number,
// to every weight. Sums of so few whole numbers are exact in float32 in any
// order, so the weights after n steps are a plain sum over the samples of
// these steps: whatever the number of ranks, and however often the job was
// restarted. A sample that is left out, or used twice, shows.
#ifndef LOCKSTEP_TESTS_CLUSTER_STEP_MODEL_H_
#define LOCKSTEP_TESTS_CLUSTER_STEP_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// Sums of less than 2^24 are exact.
inline constexpr int64_t kMaxStepSamples = (1 << 24) / 3;

struct StepTensor {
  const char* name;
  size_t elements;
};
inline constexpr StepTensor kStepTensors[] = {
    {"embedding", 300}, {"dense.weight", 1025}, {"dense.bias", 7}};
inline constexpr size_t kStepElements = 300 + 1025 + 7;

// What sample `sample` adds to weight `element` of all tensors in a row.
float SampleGradient(int64_t sample, size_t element);

// Adds that of sample `sample` to the tensor that begins at `first`.
void AddSample(int64_t sample, size_t first, std::span<float> gradient);

// All weights after `steps` steps of `batch` samples, from zero, without those
// of the steps in `skipped`.
std::vector<float> ExpectedWeights(int64_t steps, int64_t batch,
                                   const std::set<int64_t>& skipped = {});

// 16 hexadecimal digits over the bits of `weights`.
std::string HashWeights(std::span<const float> weights);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_CLUSTER_STEP_MODEL_H_
