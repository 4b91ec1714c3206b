// The beginning and the end of one generation. Pure; for lifecycle.cc.
#ifndef LOCKSTEP_SERVER_CORE_GENERATION_H_
#define LOCKSTEP_SERVER_CORE_GENERATION_H_

#include "server/core/job_view.h"

namespace lockstep {

// PREPARING of the next generation, on the nodes that job->tasks name: fresh
// ranks, a hold on each node.
void StartGeneration(Job* job, Time now);

// What the gang shares beside its tasks' ports: each gets a port on the node of
// rank 0.
std::vector<std::string> ServicesOf(const JobSpec& spec);

// Whether each node has prepared and leased a port for each of its tasks;
// those that have not are appended to `missing`.
bool AllPrepared(const Job& job, const JobView& view,
                 std::vector<NodeName>* missing);

// Who is who, from the ports that the nodes leased. REQUIRES: AllPrepared.
void MakeClusterSpec(Job* job, const JobView& view);

// Appends the generation to the job's attempts; again: does nothing.
void CloseAttempt(Job* job, const JobView& view, const Cause& cause, Time now);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_GENERATION_H_
