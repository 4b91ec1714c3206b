// The version of what a rank and its worker daemon say to each other
// (proto/lockstep/v1/rank.proto).
//
//   1  also all ranks that leave RankHello.protocol out
//
// Both come with an installation of their own: a program has the wheel of its
// environment, and a node its daemon. A daemon takes ranks of its own version
// and of the one before, whatever the releases are called. So a node is
// upgraded first, and its ranks run on.
//
// Most changes need no new version: each side keeps quiet about fields that it
// does not know. Raise kLinkProtocol, and add a line above, when a rank of the
// version before must be spoken to in another way. Then the code for the
// version before that one can go.
#ifndef LOCKSTEP_WORKER_RANK_LINK_PROTOCOL_H_
#define LOCKSTEP_WORKER_RANK_LINK_PROTOCOL_H_

#include <cstdint>

#include "common/base/status.h"
#include "lockstep/v1/rank.pb.h"

namespace lockstep::worker::rank_link {

inline constexpr int32_t kLinkProtocol = 1;

// FailedPrecondition: a daemon of this program does not take the rank. The
// sentence has the releases of both and says which one to install where.
Status CheckProtocol(const v1::RankHello& hello);

}  // namespace lockstep::worker::rank_link

#endif  // LOCKSTEP_WORKER_RANK_LINK_PROTOCOL_H_
