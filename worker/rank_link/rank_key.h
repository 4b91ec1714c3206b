// Which process a rank is: the key of everything that is said about it.
#ifndef LOCKSTEP_WORKER_RANK_LINK_RANK_KEY_H_
#define LOCKSTEP_WORKER_RANK_LINK_RANK_KEY_H_

#include <compare>
#include <cstdint>
#include <string>

namespace lockstep::worker::rank_link {

struct RankKey {
  std::string job;
  uint64_t generation = 0;
  int rank = 0;

  auto operator<=>(const RankKey&) const = default;
};

// "job mnist g3 rank 1".
std::string Describe(const RankKey& key);

}  // namespace lockstep::worker::rank_link

#endif  // LOCKSTEP_WORKER_RANK_LINK_RANK_KEY_H_
