// What nodes report of a job, and how it becomes part of the job. Pure; for
// lifecycle.cc.
#ifndef LOCKSTEP_SERVER_CORE_REPORTS_H_
#define LOCKSTEP_SERVER_CORE_REPORTS_H_

#include "server/core/job_view.h"

namespace lockstep {

// What `node` last said of `generation`; null: nothing.
const GangStatus* GangOf(const JobView& view, const NodeName& node,
                         Generation generation);

bool IsLost(const JobView& view, const NodeName& node);

// The node is there, has told everything it has, and this is not among it.
bool SaysNothing(const JobView& view, const NodeName& node,
                 Generation generation);

// Ranks, checkpoints, artifacts, events, and holds of what is gone.
void TakeReports(Job* job, const JobView& view, Time now);

// The most steps that a rank of this generation committed, by what is stored
// or only known in memory; -1: none.
int64_t HighestCommitted(const Job& job, const JobView& view);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_REPORTS_H_
