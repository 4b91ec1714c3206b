// The peers that a communicator's error is about, as data attached to its
// sentence.
//
// Only a rank's own observations count: a peer that it could not connect to, a
// peer whose host stopped answering, a peer whose process ended without a
// goodbye. An error that only follows from another rank's (Abort, a goodbye, a
// connection that its peer cut off because of a third rank) names no peer. So
// the peers are hints at a network or a host, for the choice where ranks run
// next.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_LOST_PEERS_H_
#define LOCKSTEP_WORKER_COLLECTIVE_LOST_PEERS_H_

#include <vector>

#include "common/base/status.h"

namespace lockstep::worker::collective {

// Returns `status`, an error, with `ranks` in place of the peers that it named
// before. Annotate and WithReason keep them.
Status WithLostPeers(Status status, const std::vector<int>& ranks);

// The peers in the order in which they were named; empty: none.
std::vector<int> LostPeersOf(const Status& status);

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_LOST_PEERS_H_
