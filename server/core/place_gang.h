// Where the tasks of one gang go. Pure; for scheduler.cc, whose header says the
// rules.
#ifndef LOCKSTEP_SERVER_CORE_PLACE_GANG_H_
#define LOCKSTEP_SERVER_CORE_PLACE_GANG_H_

#include <optional>
#include <vector>

#include "server/core/job.h"
#include "server/core/placement.h"

namespace lockstep {

// nullopt: it does not fit; `*placed` says how many of its tasks do. With many
// nodes that are apart a place may be missed.
std::optional<std::vector<TaskPlacement>> PlaceAnew(
    const JobSpec& spec, const std::vector<HostCapacity>& hosts,
    size_t* placed);

// `hosts` as if none cooled down and no two were apart.
std::vector<HostCapacity> Forgiven(std::vector<HostCapacity> hosts);

// Where its last generation was, on the same GPUs, if all of it fits there and
// the place was not what ended it.
std::optional<std::vector<TaskPlacement>> PlaceAgain(
    const Job& job, const std::vector<HostCapacity>& hosts);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_PLACE_GANG_H_
