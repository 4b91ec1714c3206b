// Hashes that are the same in every process and release. None of them resists
// an attacker.
#ifndef LOCKSTEP_COMMON_BASE_HASH_H_
#define LOCKSTEP_COMMON_BASE_HASH_H_

#include <cstdint>
#include <string_view>

namespace lockstep {

// FNV-1a. With `hash` it goes on after what was hashed before.
inline uint64_t Fnv1a(std::string_view text,
                      uint64_t hash = 0xcbf29ce484222325) {
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

// The increment and the finaliser of splitmix64 (Steele, Lea, Flood: Fast
// Splittable Pseudorandom Number Generators, 2014): every input bit moves half
// of the output bits.
inline constexpr uint64_t kSplitMixIncrement = 0x9e3779b97f4a7c15;
inline uint64_t SplitMix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_HASH_H_
