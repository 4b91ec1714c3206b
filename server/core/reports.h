// Applies the reports of nodes to a job. Pure; for lifecycle.cc.
#ifndef LOCKSTEP_SERVER_CORE_REPORTS_H_
#define LOCKSTEP_SERVER_CORE_REPORTS_H_

#include "server/core/job_view.h"

namespace lockstep::server {

// Returns the last report of `node` on `generation`; null if there is none.
const GangStatus* GangOf(const JobView& view, const NodeName& node,
                         Generation generation);

bool IsLost(const JobView& view, const NodeName& node);

// Why the node has nothing of a launched generation any more, or will never say
// what it has: it is lost, forgotten, or came back without. Before the launch
// only a loss counts. nullopt: it has its part.
std::optional<Cause> LossOf(const JobView& view, const NodeName& node,
                            Generation generation, bool launched = true);

// Whether the node is READY and has reported since the coordinator started, but
// not this generation.
bool HasNoReport(const JobView& view, const NodeName& node,
                 Generation generation);

// Applies ranks, checkpoints, artifacts and events, and releases the holds of
// what is gone.
void TakeReports(Job* job, const JobView& view, Time now);

// Returns the highest step that a rank of this generation committed, as stored
// or as known in memory; -1 if none.
int64_t HighestCommitted(const Job& job, const JobView& view);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_REPORTS_H_
