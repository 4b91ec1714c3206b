// One number for a map of names and values. PURE.
#ifndef LOCKSTEP_WORKER_RUNTIME_FINGERPRINT_H_
#define LOCKSTEP_WORKER_RUNTIME_FINGERPRINT_H_

#include <cstdint>
#include <map>
#include <string>

#include "common/base/hash.h"

namespace lockstep::worker::runtime {

// FNV-1a, folded so that the low half, which the control word carries, depends
// on all of it.
inline uint64_t Fingerprint(const std::map<std::string, std::string>& config) {
  uint64_t hash = Fnv1a("");
  for (const auto& [name, value] : config) {
    for (const std::string& text : {name, value}) {
      hash = Fnv1a("\xff", Fnv1a(text, hash));
    }
  }
  return hash ^ (hash >> 32);
}

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_FINGERPRINT_H_
