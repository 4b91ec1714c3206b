// A connection between two nodes that a failed generation lacked. Plain value.
#ifndef LOCKSTEP_SERVER_CORE_LOST_PAIR_H_
#define LOCKSTEP_SERVER_CORE_LOST_PAIR_H_

#include <string>

#include "common/model/job.h"

namespace lockstep::server {

// `from` did not reach `to`, or lost its connection to it.
struct LostPair {
  NodeName from;
  NodeName to;
  std::string error;
  // The nodes reach each other now: the network has recovered, or it lets only
  // some ports through.
  bool reached_since = false;
  // A probe confirmed that the nodes do not reach each other.
  bool tested = false;

  bool operator==(const LostPair&) const = default;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_LOST_PAIR_H_
