#include "worker/runtime/membership.h"

#include <algorithm>

namespace lockstep::worker::runtime {

const std::vector<int>& Membership::own_shards() const {
  static const std::vector<int> none;
  return place < 0 ? none : shards[static_cast<size_t>(place)];
}

int Membership::rounds() const {
  size_t rounds = 0;
  for (const std::vector<int>& each : shards) {
    rounds = std::max(rounds, each.size());
  }
  return static_cast<int>(rounds);
}

std::vector<int> Membership::RanksAt(std::span<const int> places) const {
  std::vector<int> ranks;
  for (const int at : places) {
    if (at >= 0 && at < size()) ranks.push_back(members[at]);
  }
  return ranks;
}

Membership MembersWithout(std::span<const int> away, int world_size, int rank) {
  Membership membership;
  membership.world_size = world_size;
  membership.members.clear();
  membership.shards.clear();
  membership.place = -1;
  for (int each = 0; each < world_size; ++each) {
    if (std::find(away.begin(), away.end(), each) != away.end()) continue;
    if (each == rank) membership.place = membership.size();
    membership.members.push_back(each);
    membership.shards.push_back({each});
  }
  for (size_t j = 0; j < away.size(); ++j) {
    membership.shards[j % membership.shards.size()].push_back(away[j]);
  }
  return membership;
}

bool IsReturn(const Membership& now, const Membership& next) {
  return next.size() > now.size() &&
         std::includes(next.members.begin(), next.members.end(),
                       now.members.begin(), now.members.end());
}

}  // namespace lockstep::worker::runtime
