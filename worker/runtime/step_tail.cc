#include "worker/runtime/step_tail.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep::worker::runtime {
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

Duration Micros(float micros) {
  return std::chrono::microseconds(static_cast<int64_t>(micros));
}

// Of an even number, the mean of the middle two.
float Median(std::vector<float> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

size_t TailWords(int world_size) {
  return kWaits + static_cast<size_t>(world_size);
}

size_t ShardTailWords(int world_size) {
  return TailWords(world_size) + static_cast<size_t>(world_size);
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
  // False for NaN.
  if (!std::all_of(waits.begin(), waits.end(), [](float wait) {
        return wait >= 0 && wait <= kMaxWaitMicros;
      })) {
    return sum;
  }
  const auto [least, most] = std::minmax_element(waits.begin(), waits.end());
  sum.straggler_wait = Micros(own - *least);
  // All are let go at the same moment: who came later waited less.
  if (*most <= 0) return sum;
  sum.lag = Micros(Median({waits.begin(), waits.end()}) - own);
  if (waits.size() < 2) return sum;
  sum.late_rank = static_cast<int>(least - waits.begin());
  float next = kMaxWaitMicros;
  for (auto it = waits.begin(); it != waits.end(); ++it) {
    if (it != least) next = std::min(next, *it);
  }
  sum.late_by = Micros(next - *least);
  return sum;
}

void WriteShardTail(const StepTail& tail, int place, int world_size,
                    std::span<float> words) {
  WriteTail(tail, place, words);
  const std::span<float> losses = words.subspan(TailWords(world_size));
  for (const auto& [shard, sum] : tail.shard_losses) {
    const auto loss = static_cast<float>(sum);
    losses[static_cast<size_t>(shard)] = std::isfinite(loss) ? loss : 0.0f;
  }
}

StepTailSum ReadShardTail(std::span<const float> words, int place, int members,
                          int world_size) {
  StepTailSum sum = ReadTail(words.first(TailWords(members)), place);
  sum.loss_sum = 0;
  for (const float loss : words.subspan(TailWords(world_size))) {
    if (std::isfinite(loss)) sum.loss_sum += double{loss};
  }
  return sum;
}

}  // namespace lockstep::worker::runtime
