// Spare nodes of a running job (JobSpec::spares): nodes that are held, and have
// prepared, for the tasks of a node that will be lost or left. Pure; for
// lifecycle.cc, replacing.cc and assignments.cc.
//
// A job has spares while its ranks can be replaced (MayReplace). A spare fits
// the tasks of one of the job's nodes, which it prepares for (Spare::like):
// those that most nodes' tasks resemble. Where another node is replaced, it
// prepares again, for that one's tasks, with the packages and images that it
// has fetched and the interpreters of warm starts
// (worker/agent/warm/warm_ranks.h).
//
// Spares come before the queue, whatever its priorities, and stay until they
// are used or the generation ends.
//
// A spare that is lost, is drained, gets a faulty GPU or refuses is given up,
// and another one is found. The job does not wait for spares, neither at its
// start nor later.
#ifndef LOCKSTEP_SERVER_CORE_SPARES_H_
#define LOCKSTEP_SERVER_CORE_SPARES_H_

#include <set>
#include <vector>

#include "server/core/job_view.h"
#include "server/core/placement.h"

namespace lockstep::server {

// Returns null if the node is no spare.
const Spare* SpareOn(const Job& job, const NodeName& node);

// Gives up spares that are unfit or that the job may not use any more.
void CheckSpares(Job* job, const JobView& view, Time now);

// Whether the job wants more spares than it has.
bool WantsSpares(const Job& job);
// Finds nodes for them and takes the room from `hosts`. Leaves out nodes that
// `know` the generation: a node does not prepare twice for it.
void PlaceSpares(Job* job, const std::set<NodeName>& know,
                 std::vector<HostCapacity>* hosts, Time now);

// Gives the replacement, which has no node, a spare that fits, preferably one
// that has prepared for the same tasks.
void UseSpare(Job* job, const JobView& view, Replacement* replacement,
              Time now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_SPARES_H_
