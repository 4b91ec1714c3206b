// A random order of the numbers 0 to n - 1, without storing it.
//
// PURE. A Feistel network of 8 rounds, keyed by (seed, epoch), permutes the
// smallest range 0 to 4^k - 1 that holds n; a result outside of n goes through
// it again until it is inside ("cycle walking", Black and Rogaway, "Ciphers
// with Arbitrary Finite Domains", CT-RSA 2002). The mixing function is
// SplitMix64's (Steele, Lea, Flood, OOPSLA 2014). Good for shuffling, not for
// secrets.
//
// Checkpoints hold positions in this order: it may never change.
#ifndef LOCKSTEP_WORKER_DATA_PERMUTATION_H_
#define LOCKSTEP_WORKER_DATA_PERMUTATION_H_

#include <array>
#include <cstdint>

namespace lockstep::worker::data {

class Permutation {
 public:
  // REQUIRES: n <= 2^62.
  Permutation(uint64_t n, uint64_t seed, uint64_t epoch);

  // The number at `position`; each number below n is at exactly one.
  // REQUIRES: position < n.
  uint64_t operator()(uint64_t position) const;

 private:
  uint64_t Encrypt(uint64_t value) const;

  uint64_t n_;
  int half_bits_;  // Half the bits of the range.
  std::array<uint64_t, 8> keys_;
};

}  // namespace lockstep::worker::data

#endif  // LOCKSTEP_WORKER_DATA_PERMUTATION_H_
