// How much of what a node offers may be used. Pure; for membership.cc.
//
// A daemon says itself how large its host is, and whoever holds a node's
// certificate can say anything: a host of a million CPUs would get every job,
// with its secrets. So a node is taken at its word once, when it is new, and
// up to the site's limit. What it offers beyond that, then or later, waits for
// `lockstep nodes approve`. Offering less never waits, nor does coming back up
// to what was approved: a GPU that fell off the bus and is there again.
#ifndef LOCKSTEP_SERVER_CORE_NODE_APPROVAL_H_
#define LOCKSTEP_SERVER_CORE_NODE_APPROVAL_H_

#include <string>

#include "server/core/node_record.h"

namespace lockstep {

// What a new node may have without approval: more than a host has today.
inline const Resources kDefaultNodeLimit = {1024, int64_t{16} << 40, 16, ""};

// So much more memory than was approved is no growth, as the same host has a
// little more or less of it under another kernel. A part of 1.
inline constexpr double kMemoryTolerance = 1.0 / 64;

// `node` has just registered: its info is what its daemon offers. Leaves of
// that what may be used, those GPUs first that `before` had, and notes what
// waits, with an event where that is news. `before`: the node's record until
// then; null: it is new, and is taken at its word up to `limit`.
void LimitToApproved(const NodeRecord* before, const Resources& limit,
                     NodeRecord* node, WallTime now);

// Record and event of the command: all that the node offers may be used. A
// node of which nothing waits stays as it is.
NodeRecord ApproveNode(const NodeRecord& node, const std::string& requester,
                       WallTime now);

// "offers 64 cpus, 1 TiB, 8 T4, of which 32 cpus, 1 TiB, 8 T4 are approved:
// `lockstep nodes approve host-a`"; empty: nothing waits.
std::string WaitingForApproval(const NodeRecord& node);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_NODE_APPROVAL_H_
