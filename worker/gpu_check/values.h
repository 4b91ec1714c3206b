// What the check writes and expects: patterns of the memory, and matrices whose
// product is known. Exact, and the same on the host and on the device.
#ifndef LOCKSTEP_WORKER_GPU_CHECK_VALUES_H_
#define LOCKSTEP_WORKER_GPU_CHECK_VALUES_H_

#include <cstdint>
#include <vector>

#ifdef __CUDACC__
#define LOCKSTEP_ON_BOTH __host__ __device__
#else
#define LOCKSTEP_ON_BOTH
#endif

namespace lockstep::worker::gpu_check {

// Word `i` of the memory in a round. An odd round has the complement of the
// round before, so that each bit is both 0 and 1. By splitmix64 (Steele, Lea,
// Flood 2014): neighbours have nothing in common, and a wrong address is a
// wrong word.
LOCKSTEP_ON_BOTH inline uint64_t PatternWord(uint64_t i, uint32_t round) {
  uint64_t x = i + (uint64_t{round / 2} << 40) + 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  return round % 2 == 0 ? x : ~x;
}

// The matrices have small integers, so that each sum of products is exact in
// float, in any order, and in the tensor cores' half floats.
inline constexpr uint32_t kLeftPeriod = 5;
inline constexpr uint32_t kRightPeriod = 7;
// More would reach 2^24, from where float has not every integer.
inline constexpr uint32_t kMostDepth =
    (1u << 24) / (kLeftPeriod * kRightPeriod);

LOCKSTEP_ON_BOTH inline float LeftValue(uint32_t row, uint32_t k,
                                        uint32_t round) {
  return static_cast<float>((row * 3 + k + round) % kLeftPeriod + 1);
}
LOCKSTEP_ON_BOTH inline float RightValue(uint32_t k, uint32_t column,
                                         uint32_t round) {
  return static_cast<float>((column * 2 + k * 3 + round) % kRightPeriod + 1);
}
// The product's elements repeat: element (row, column) is that of ProductTable
// at ProductIndex.
LOCKSTEP_ON_BOTH inline uint32_t ProductIndex(uint32_t row, uint32_t column,
                                              uint32_t round) {
  return (row * 3 + round) % kLeftPeriod * kRightPeriod +
         (column * 2 + round) % kRightPeriod;
}
// Of matrices with `depth` columns and rows. REQUIRES: depth <= kMostDepth.
inline std::vector<float> ProductTable(uint32_t depth) {
  std::vector<float> table;
  for (uint32_t left = 0; left < kLeftPeriod; ++left) {
    for (uint32_t right = 0; right < kRightPeriod; ++right) {
      uint32_t sum = 0;
      for (uint32_t k = 0; k < depth; ++k) {
        sum += ((left + k) % kLeftPeriod + 1) *
               ((right + k * 3) % kRightPeriod + 1);
      }
      table.push_back(static_cast<float>(sum));
    }
  }
  return table;
}

// What rank 0 or 1 brings to an all-reduce, and the sum of both.
LOCKSTEP_ON_BOTH inline float ReduceValue(uint64_t i, int rank,
                                          uint32_t round) {
  return static_cast<float>((i + round) % 100'003 +
                            static_cast<uint64_t>(rank));
}
LOCKSTEP_ON_BOTH inline float ReducedValue(uint64_t i, uint32_t round) {
  return ReduceValue(i, 0, round) + ReduceValue(i, 1, round);
}

}  // namespace lockstep::worker::gpu_check

#endif  // LOCKSTEP_WORKER_GPU_CHECK_VALUES_H_
