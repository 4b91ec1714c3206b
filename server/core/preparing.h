// How long getting ready may take, and who is late. Pure; for lifecycle.cc.
//
// Fetching (packages, images) has a limit of its own, and its time does not
// count against the rest. Neither does the time that a node takes to see the
// file of rank 0's node in the output directory. What a node says of it comes
// with its reports; that a fetch moves at all is the node's to watch.
#ifndef LOCKSTEP_SERVER_CORE_PREPARING_H_
#define LOCKSTEP_SERVER_CORE_PREPARING_H_

#include <optional>
#include <vector>

#include "server/core/job_view.h"

namespace lockstep {

// Of the nodes that have not prepared yet, those whose time is over: names
// their tasks, and what each was doing. nullopt: none is late.
std::optional<Cause> LateToPrepare(const Job& job, const JobView& view,
                                   const std::vector<NodeName>& missing,
                                   const LifecycleTimeouts& timeouts, Time now);

// Settles the identity of the output directory, where `gang` is of the node of
// rank 0 and the first to say it.
void SettleOutputIdentity(Job* job, const GangStatus& gang,
                          const NodeName& node);

// The node sees the output directory that is settled, or there is nothing to
// see; or its daemon is an older one, which cannot say: such a node is not
// waited for. It may be launched.
bool SeesOutput(const Job& job, const GangStatus& gang);

// Why `node` refused, for the job's history.
Cause RefusalBy(const Job& job, const NodeName& node, Cause refusal);

// Takes over what a node says of the preparation of `tasks`, which are the
// indices of its own: what was begun and ended, and once a second how far it
// is, as each change is a commit.
void TakePreparations(Job* job, const std::vector<size_t>& tasks,
                      const GangStatus& gang);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_PREPARING_H_
