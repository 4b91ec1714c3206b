// Limits a node's offer to the approved resources. Pure; for membership.cc.
//
// A daemon reports the size of its host itself, and the holder of a node's
// certificate can report anything: a host of a million CPUs would get every
// job, with its secrets. So a new node's first offer is accepted up to the
// site's limit. Anything beyond it, then or later, waits for `lockstep nodes
// approve`. An offer up to the approved amount never waits, for example when a
// GPU that fell off the bus returns.
#ifndef LOCKSTEP_SERVER_CORE_NODE_APPROVAL_H_
#define LOCKSTEP_SERVER_CORE_NODE_APPROVAL_H_

#include <string>

#include "server/core/node_record.h"

namespace lockstep::server {

// The most that a new node gets without approval: more than today's hosts have.
inline const Resources kDefaultNodeLimit = {1024, int64_t{16} << 40, 16, ""};

// Memory growth up to this fraction of the approved amount is ignored, because
// the usable memory of a host varies a little with the kernel.
inline constexpr double kMemoryTolerance = 1.0 / 64;

// Reduces the info of `node`, which has just registered, from what its daemon
// offers to what may be used. GPUs that `before` had are kept first. Records
// what waits for approval, with an event if that changed. `before` is the
// node's earlier record; null for a new node, whose offer is accepted up to
// `limit`.
void LimitToApproved(const NodeRecord* before, const Resources& limit,
                     NodeRecord* node, WallTime now);

// Returns the record after the command, with its event: everything that the
// node offers may be used. Unchanged if nothing waits.
NodeRecord ApproveNode(const NodeRecord& node, const std::string& requester,
                       WallTime now);

// "offers 64 cpus, 1 TiB, 8 T4, of which 32 cpus, 1 TiB, 8 T4 are approved:
// `lockstep nodes approve host-a`"; empty: nothing waits.
std::string WaitingForApproval(const NodeRecord& node);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_NODE_APPROVAL_H_
