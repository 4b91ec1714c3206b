#include "server/core/awaited_ranks.h"

namespace lockstep::server {
namespace {

// It may be the one that holds the others up.
bool MayBeStuck(const CollectiveWait& wait) {
  return !wait.responsive || wait.waiting == false;
}

enum class Lead { kStuckRank, kCircle, kUnknown };

// Where the waits lead from `*rank`, which becomes the last one.
Lead Follow(const CollectiveWaits& waits, int32_t* rank) {
  for (size_t hops = 0; hops <= waits.size(); ++hops) {
    const auto at = waits.find(*rank);
    if (at == waits.end()) return Lead::kUnknown;
    if (MayBeStuck(at->second)) return Lead::kStuckRank;
    if (!at->second.peer) return Lead::kUnknown;
    *rank = *at->second.peer;
  }
  return Lead::kCircle;
}

// The only rank for which `holds`; empty where there are others.
template <typename Holds>
std::set<int32_t> Only(const CollectiveWaits& waits, Holds holds) {
  std::set<int32_t> ranks;
  for (const auto& [rank, wait] : waits) {
    if (holds(wait)) ranks.insert(rank);
  }
  return ranks.size() == 1 ? ranks : std::set<int32_t>();
}

}  // namespace

bool IsWaiting(const CollectiveWait& wait) {
  return wait.responsive && wait.waiting == true;
}

std::set<int32_t> AwaitedRanks(const CollectiveWaits& waits) {
  std::set<int32_t> ranks;
  bool circle = false;
  for (const auto& [rank, wait] : waits) {
    int32_t end = rank;
    const Lead lead = Follow(waits, &end);
    circle = circle || lead == Lead::kCircle;
    if (lead == Lead::kStuckRank && end != rank) ranks.insert(end);
  }
  if (!ranks.empty() || circle) return ranks;
  ranks = Only(waits, [](const auto& wait) { return !wait.responsive; });
  return ranks.empty() ? Only(waits, MayBeStuck) : ranks;
}

}  // namespace lockstep::server
