// A further node for a running job, beside those of its tasks: which nodes may
// become one, and whether one still can be used. Pure; for replacing.cc and
// spares.cc.
#ifndef LOCKSTEP_SERVER_CORE_NEW_NODE_H_
#define LOCKSTEP_SERVER_CORE_NEW_NODE_H_

#include <optional>
#include <set>
#include <vector>

#include "server/core/job_view.h"
#include "server/core/placement.h"

namespace lockstep::server {

// Whether tasks of the job may move to another node while the others stay: it
// runs, does not end, and all its ranks are recoverable. Not of one with
// JobSpec::rescale: its gang restarts with fewer tasks.
bool MayReplace(const Job& job);

struct NewNode {
  NodeName node;
  // The GPUs there of each task, in the order of the job's tasks.
  std::vector<std::vector<int32_t>> gpus;
};

// Finds the node that the tasks of `from` fit best, adds a hold on it to the
// job and takes the room from `hosts`. `stays` is set if the tasks on `from`
// stay there for now. Leaves out the nodes of `without`, and those that have a
// part of the job or had one of these tasks. Returns nullopt if there is none.
std::optional<NewNode> TakeNode(Job* job, const NodeName& from, bool stays,
                                const std::set<NodeName>& without,
                                std::vector<HostCapacity>* hosts, Time now);

// Whether the report is about the ranks of the tasks on `from`. A spare
// prepares for other tasks than it had prepared for before.
bool IsForRanksOn(const Job& job, const GangStatus& gang, const NodeName& from);

// Whether the new node has to be given up: it is lost, gets no new work any
// more, one of the GPUs is faulty, or it has ended the generation and will not
// begin it again.
bool IsUnfit(const Job& job, const JobView& view, const NodeName& node,
             const std::vector<std::vector<int32_t>>& gpus);

// Whether the node is ready to start the tasks that are on `from`.
bool HasPrepared(const Job& job, const JobView& view, const NodeName& node,
                 const NodeName& from);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_NEW_NODE_H_
