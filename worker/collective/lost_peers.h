// Which peers a communicator's error is about, as data beside its sentence.
//
// Only what a rank saw itself counts: a peer that it could not connect to, one
// whose host has stopped to answer, one whose process ended without a goodbye.
// Who was merely told that it is over (Abort, a goodbye, a connection that its
// peer cut off because of somebody else) names nobody. So these are hints at a
// network or a host, for those who choose where ranks run next.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_LOST_PEERS_H_
#define LOCKSTEP_WORKER_COLLECTIVE_LOST_PEERS_H_

#include <vector>

#include "common/base/status.h"

namespace lockstep {

// `status`, an error, with `ranks` in place of what it named before. Annotate
// and WithReason keep them.
Status WithLostPeers(Status status, const std::vector<int>& ranks);

// In the order that they were named; empty where there are none.
std::vector<int> LostPeersOf(const Status& status);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_LOST_PEERS_H_
