// Finds the ranks that hold their gang up in a collective. Pure.
//
// Each rank says for which peer it waits (CollectiveWait). A rank that is stuck
// says that it waits for none, or nothing any more: the waits of the others
// lead to it. Where the network is cut they lead in a circle.
#ifndef LOCKSTEP_SERVER_CORE_AWAITED_RANKS_H_
#define LOCKSTEP_SERVER_CORE_AWAITED_RANKS_H_

#include <cstdint>
#include <map>
#include <set>

#include "common/model/rank_progress.h"

namespace lockstep::server {

using CollectiveWaits = std::map<int32_t, CollectiveWait>;

// A process that runs, and says that it waits for a peer.
bool IsWaiting(const CollectiveWait& wait);

// `waits`: of all ranks of the gang, which make no progress. Returns the ranks
// to which the waits of others lead. Where they lead to none and in no circle,
// because peers are not known, it is the only rank that is not responsive, or
// else the only one that says that it waits for none. Empty: not known.
std::set<int32_t> AwaitedRanks(const CollectiveWaits& waits);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_AWAITED_RANKS_H_
