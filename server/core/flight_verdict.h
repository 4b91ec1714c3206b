// Finds the rank that has not begun a collective operation in which others
// wait, from PyTorch's flight recorders of all ranks.
//
// Each process group counts its operations, equally on all of its ranks, and a
// program may begin several before the first one ends. The ranks of a group
// that have begun the fewest are the last ones. A last rank is the cause if all
// that it has begun is over, or if others have finished the operation in which
// it still is; and if it does not wait in another group, where others hold it
// up. Pure.
#ifndef LOCKSTEP_SERVER_CORE_FLIGHT_VERDICT_H_
#define LOCKSTEP_SERVER_CORE_FLIGHT_VERDICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/model/evidence.h"

namespace lockstep::server {

struct FlightVerdict {
  // Ascending. Empty: all ranks of a group are in the same operation, or they
  // differ in what they call.
  std::vector<int32_t> cause;
  // "has not begun all_reduce 1205 of group 0 (default_pg), in which 63 ranks
  // wait": follows the ranks of `cause`; without them a whole sentence.
  std::string what;
};

// nullopt: no rank waits, or some ranks have no records, so that one of them
// may be the cause.
std::optional<FlightVerdict> JudgeFlight(
    const std::vector<RankEvidence>& evidence,
    const std::vector<int32_t>& missing);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_FLIGHT_VERDICT_H_
