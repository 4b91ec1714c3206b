#include "worker/runtime/step_tail.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr size_t kSamplesLow = kControlWords;
constexpr size_t kSamplesHigh = kControlWords + 1;
constexpr size_t kLoss = kControlWords + 2;
constexpr size_t kWaits = kControlWords + 3;
constexpr int64_t kSamplesPiece = 1 << 12;
constexpr float kMaxPieceSum = 1 << 24;
constexpr float kMaxWaitMicros = 1e10f;  // Nearly three hours.

int64_t Piece(float sum) {
  return sum >= 0 && sum <= kMaxPieceSum ? static_cast<int64_t>(sum) : 0;
}

}  // namespace

size_t TailWords(int world_size) {
  return kWaits + static_cast<size_t>(world_size);
}

void WriteTail(const StepTail& tail, int rank, std::span<float> words) {
  std::fill(words.begin(), words.end(), 0.0f);
  std::copy(tail.control.begin(), tail.control.end(), words.begin());
  words[kSamplesLow] = static_cast<float>(tail.samples % kSamplesPiece);
  words[kSamplesHigh] = static_cast<float>(tail.samples / kSamplesPiece);
  const auto loss = static_cast<float>(tail.loss_sum);
  words[kLoss] = std::isfinite(loss) ? loss : 0.0f;
  words[kWaits + static_cast<size_t>(rank)] = std::clamp(
      static_cast<float>(ToSeconds(tail.waited) * 1e6), 0.0f, kMaxWaitMicros);
}

StepTailSum ReadTail(std::span<const float> words, int rank) {
  StepTailSum sum;
  std::copy_n(words.begin(), sum.control.size(), sum.control.begin());
  sum.samples =
      Piece(words[kSamplesLow]) + Piece(words[kSamplesHigh]) * kSamplesPiece;
  // Finite losses may add up to what is not.
  sum.loss_sum = std::isfinite(words[kLoss]) ? double{words[kLoss]} : 0;
  const std::span<const float> waits = words.subspan(kWaits);
  const float own = waits[static_cast<size_t>(rank)];
  const float least = *std::min_element(waits.begin(), waits.end());
  // False for NaN.
  if (own >= least && least >= 0 && own <= kMaxWaitMicros) {
    sum.straggler_wait =
        std::chrono::microseconds(static_cast<int64_t>(own - least));
  }
  return sum;
}

}  // namespace lockstep
