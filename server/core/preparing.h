// Time limits of preparation, and the nodes that exceed them. Pure; for
// lifecycle.cc.
//
// Fetching (packages, images) has a limit of its own, and its time does not
// count against the rest. Neither does the time until a node sees the file of
// rank 0's node in the output directory. Nodes report these times. The node
// itself detects a fetch that makes no progress.
#ifndef LOCKSTEP_SERVER_CORE_PREPARING_H_
#define LOCKSTEP_SERVER_CORE_PREPARING_H_

#include <optional>
#include <vector>

#include "server/core/job_view.h"

namespace lockstep::server {

// Returns a cause that names the tasks of the late nodes among `missing`, and
// what each node was doing. nullopt if no node is late.
std::optional<Cause> LateToPrepare(const Job& job, const JobView& view,
                                   const std::vector<NodeName>& missing,
                                   const LifecycleTimeouts& timeouts, Time now);

// Settles the identity of the output directory, if `gang` comes from the node
// of rank 0 and no report set it before.
void SettleOutputIdentity(Job* job, const GangStatus& gang,
                          const NodeName& node);

// Whether the node may be launched: it sees the settled output directory, the
// job has none, or the daemon is too old to report it.
bool SeesOutput(const Job& job, const GangStatus& gang);

// Returns why `node` refused, for the job's history.
Cause RefusalBy(const Job& job, const NodeName& node, Cause refusal);

// Records what a node reports about the preparation of its own tasks, which
// have the indices `tasks`: begin and end at once, progress once a second,
// because each change is a commit.
void TakePreparations(Job* job, const std::vector<size_t>& tasks,
                      const GangStatus& gang);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_PREPARING_H_
