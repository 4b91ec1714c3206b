// Ranks of a job that are away while the others train without them.
#ifndef LOCKSTEP_COMMON_MODEL_AWAY_RANKS_H_
#define LOCKSTEP_COMMON_MODEL_AWAY_RANKS_H_

#include <cstdint>
#include <vector>

namespace lockstep {

// The chief, which speaks for all: the first rank that is not in `away`, which
// is ascending.
inline int32_t ChiefWithout(const std::vector<int32_t>& away) {
  int32_t chief = 0;
  for (const int32_t rank : away) {
    if (rank == chief) ++chief;
  }
  return chief;
}

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_AWAY_RANKS_H_
