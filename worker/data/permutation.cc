#include "worker/data/permutation.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/base/hash.h"

namespace lockstep::worker::data {
Permutation::Permutation(uint64_t n, uint64_t seed, uint64_t epoch) : n_(n) {
  const int bits = n > 1 ? std::bit_width(n - 1) : 0;
  half_bits_ = std::max(1, (bits + 1) / 2);
  // Mixed one after the other, so that (seed, epoch) and (epoch, seed), or
  // neighbours of both, do not meet.
  uint64_t state = SplitMix(SplitMix(seed + kSplitMixIncrement) ^
                            (epoch + kSplitMixIncrement));
  for (uint64_t& key : keys_) key = SplitMix(state += kSplitMixIncrement);
}

uint64_t Permutation::Encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (const uint64_t key : keys_) {
    // The upper bits of a product are the better mixed ones.
    const uint64_t f = SplitMix(right + key) >> (64 - half_bits_);
    left = std::exchange(right, left ^ f);
  }
  return left << half_bits_ | right;
}

uint64_t Permutation::operator()(uint64_t position) const {
  // Ends: the walk follows a cycle that comes back to `position`, which is
  // below n_. As the range is below 4 n, it takes 4 turns on average or less.
  uint64_t value = Encrypt(position);
  while (value >= n_) value = Encrypt(value);
  return value;
}

}  // namespace lockstep::worker::data
