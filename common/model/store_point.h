// A state of the coordinator's store: how a coordinator and a worker daemon
// tell which of two is the later one.
#ifndef LOCKSTEP_COMMON_MODEL_STORE_POINT_H_
#define LOCKSTEP_COMMON_MODEL_STORE_POINT_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

// Points of one history are ordered by epoch, then version; points of two
// histories are not.
struct StorePoint {
  // Drawn when a store is made, and anew when a part of it is given up
  // (`lockstep-coordinator restore`, `accept-loss`): kHistoryDigits lower-case
  // hexadecimal digits. Empty: not known.
  std::string history;
  // Rises with each start of the coordinator.
  uint64_t epoch = 0;
  // The number of the last commit.
  int64_t version = 0;

  bool operator==(const StorePoint&) const = default;
};

inline constexpr size_t kHistoryDigits = 32;

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_STORE_POINT_H_
