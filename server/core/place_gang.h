// Places the tasks of one gang by the rules in scheduler.h. Pure; for
// scheduler.cc, rescale.cc and expected_start.cc.
#ifndef LOCKSTEP_SERVER_CORE_PLACE_GANG_H_
#define LOCKSTEP_SERVER_CORE_PLACE_GANG_H_

#include <optional>
#include <vector>

#include "server/core/job.h"
#include "server/core/placement.h"

namespace lockstep::server {

// Returns nullopt if the gang does not fit. Sets `*placed` to the number of its
// tasks that fit. If many nodes are apart, it may miss a possible placement.
std::optional<std::vector<TaskPlacement>> PlaceAnew(
    const JobSpec& spec, const std::vector<HostCapacity>& hosts,
    size_t* placed);

// Takes these places on `hosts`.
void Occupy(const JobSpec& spec, const std::vector<TaskPlacement>& placement,
            std::vector<HostCapacity>* hosts);

// Gives back what `holds` have taken.
void GiveBack(const std::vector<Hold>& holds, std::vector<HostCapacity>* hosts);

// Returns `hosts` without cool-downs and without pairs that are apart.
std::vector<HostCapacity> Forgiven(std::vector<HostCapacity> hosts);

// Returns the places of the last generation for `spec`, which is the job's or
// one of fewer tasks, with the same GPUs, if all of it fits there, it had as
// many tasks, and the place did not end it.
std::optional<std::vector<TaskPlacement>> PlaceAgain(
    const Job& job, const JobSpec& spec,
    const std::vector<HostCapacity>& hosts);

// As PlaceAnew, and avoids the node that killed the job twice. nullopt if there
// is none, or the gang does not fit elsewhere.
std::optional<std::vector<TaskPlacement>> PlaceElsewhere(
    const Job& job, const JobSpec& spec, std::vector<HostCapacity> hosts);

// Returns `hosts` as if no job were there.
std::vector<HostCapacity> Emptied(std::vector<HostCapacity> hosts);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_PLACE_GANG_H_
