// The beginning and the end of one generation. Pure; for lifecycle.cc.
#ifndef LOCKSTEP_SERVER_CORE_GENERATION_H_
#define LOCKSTEP_SERVER_CORE_GENERATION_H_

#include "server/core/job_view.h"

namespace lockstep::server {

// Enters PREPARING of the next generation on the nodes that job->tasks name,
// with new ranks and a hold on each node.
void StartGeneration(Job* job, Time now);

// Returns the services that the gang shares besides its tasks' ports. Each gets
// a port on the node of rank 0.
std::vector<std::string> ServicesOf(const JobSpec& spec);

// Whether each node has prepared and leased a port for each of its tasks.
// Appends the nodes that have not to `missing`.
bool AllPrepared(const Job& job, const JobView& view,
                 std::vector<NodeName>* missing);

// Makes the cluster spec from the ports that the nodes leased.
// REQUIRES: AllPrepared.
void MakeClusterSpec(Job* job, const JobView& view);

// Sets the addresses that ranks find by rank 0's node: its `address`, and the
// ports that its gang leased.
void SetMaster(const GangStatus& gang, const std::string& address,
               const JobSpec& job, ClusterSpec* spec);

// The GPUs of one of the task's ranks, which share them equally.
std::vector<int32_t> GpusOfRank(const TaskStatus& task, int32_t local_rank);

// The hold of the current generation on `node` for the tasks with the indices
// `tasks` and their GPUs.
Hold HoldOn(const Job& job, const std::vector<size_t>& tasks,
            const NodeName& node, Time now);

// Appends the generation to the job's attempts. A repeated call does nothing.
void CloseAttempt(Job* job, const JobView& view, const Cause& cause, Time now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_GENERATION_H_
