// A state of the coordinator's store. It tells coordinator and worker daemons
// which of two states is later.
#ifndef LOCKSTEP_COMMON_MODEL_STORE_POINT_H_
#define LOCKSTEP_COMMON_MODEL_STORE_POINT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// Points of one history are ordered by epoch, then version. Points of two
// histories are not ordered.
struct StorePoint {
  // Drawn when a store is made, and again when a part of it is discarded
  // (`lockstep-coordinator restore`, `accept-loss`): kHistoryDigits lower-case
  // hexadecimal digits. Empty if unknown.
  std::string history;
  // Increases with each start of the coordinator.
  uint64_t epoch = 0;
  // The number of the last commit.
  int64_t version = 0;
  // Drawn with each start of the coordinator. Two started copies of one store
  // have the same epoch but different ids. Empty if unknown.
  std::string epoch_id = {};

  bool operator==(const StorePoint&) const = default;
};

inline constexpr size_t kHistoryDigits = 32;

inline bool IsHistory(std::string_view text) {
  return text.size() == kHistoryDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// For a coordinator whose store is at `own` and which replaced `replaced`: true
// if a node that has obeyed `obeyed` must not obey it, judged by history and
// epoch.
template <typename Histories>
bool IsOutdated(const StorePoint& own, const Histories& replaced,
                const StorePoint& obeyed) {
  if (own.history.empty() || obeyed.history.empty() ||
      own.history == obeyed.history) {
    return own.epoch < obeyed.epoch ||
           (own.epoch == obeyed.epoch && !own.epoch_id.empty() &&
            !obeyed.epoch_id.empty() && own.epoch_id != obeyed.epoch_id);
  }
  return std::find(replaced.begin(), replaced.end(), obeyed.history) ==
         replaced.end();
}

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_STORE_POINT_H_
