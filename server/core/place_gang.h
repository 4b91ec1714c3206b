// Places the tasks of one gang by the rules in scheduler.h. Pure; for
// scheduler.cc and expected_start.cc.
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

// Returns `hosts` without cool-downs and without pairs that are apart.
std::vector<HostCapacity> Forgiven(std::vector<HostCapacity> hosts);

// Returns the places of the last generation, with the same GPUs, if all of it
// fits there and the place did not end it.
std::optional<std::vector<TaskPlacement>> PlaceAgain(
    const Job& job, const std::vector<HostCapacity>& hosts);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_PLACE_GANG_H_
