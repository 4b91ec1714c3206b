// One number for a map of names and values. PURE.
#ifndef LOCKSTEP_WORKER_RUNTIME_FINGERPRINT_H_
#define LOCKSTEP_WORKER_RUNTIME_FINGERPRINT_H_

#include <cstdint>
#include <map>
#include <string>

namespace lockstep {

// FNV-1a, folded so that the low half, which the control word carries, depends
// on all of it.
inline uint64_t Fingerprint(const std::map<std::string, std::string>& config) {
  uint64_t hash = 0xcbf29ce484222325ull;
  auto add = [&hash](const std::string& text) {
    for (const char c : text) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    }
    hash = (hash ^ 0xff) * 0x100000001b3ull;
  };
  for (const auto& [name, value] : config) {
    add(name);
    add(value);
  }
  return hash ^ (hash >> 32);
}

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_RUNTIME_FINGERPRINT_H_
