// Many ranks in a few words. Pure.
#ifndef LOCKSTEP_COMMON_MODEL_RANK_LIST_H_
#define LOCKSTEP_COMMON_MODEL_RANK_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// "rank 3", "ranks 0-2 and 7", "ranks 0-3, 8 and 12 more". `ranks` are
// ascending.
std::string RankList(const std::vector<int32_t>& ranks);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_RANK_LIST_H_
