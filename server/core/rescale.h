// The size of a gang that may run with fewer tasks than its job asks for
// (JobSpec::rescale; docs/recovery.md, "A smaller gang, for any program").
// Pure; for the scheduler and lifecycle.cc.
//
// A size is a number of tasks of chief and workers. Only workers are left out,
// those with the highest indices: the chief, parameter servers and evaluators
// are part of each gang. A size lasts for a generation, and another one is
// another generation.
//
//   placed     with as many tasks as there is room for. A gang that restarts
//              waits a moment for as many as it had, since a node that is lost
//              may be back.
//   more room  A gang with fewer tasks than wanted restarts with more, when the
//              room for them has been there for a while and the restart is
//              worth its costs. It is asked to save and to stop as a job that
//              leaves a drained node.
//   resized    A user sets how many tasks the job has at most: fewer at once,
//              more as soon as there is room.
#ifndef LOCKSTEP_SERVER_CORE_RESCALE_H_
#define LOCKSTEP_SERVER_CORE_RESCALE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/core/job_view.h"
#include "server/core/placement.h"

namespace lockstep::server {

// How long a gang that restarts waits for as many tasks as it had.
inline constexpr Duration kFullSizePatience = std::chrono::seconds(30);
// How long there must have been room for more tasks, and how long a generation
// must have run, before the gang restarts with more by itself.
inline constexpr Duration kRoomStays = std::chrono::seconds(60);
inline constexpr Duration kLongEnoughToGrow = std::chrono::minutes(10);
// How long ranks that were asked to may take to save and to stop.
inline constexpr Duration kLongestSave = std::chrono::minutes(5);

// All that the spec asks for.
int32_t SizeOf(const JobSpec& spec);
// Of the current generation, or of the last one.
int32_t SizeOf(const Job& job);
// The most that the gang is placed with.
int32_t WantedSize(const Job& job);
// The fewest that it may run with.
int32_t LeastSize(const JobSpec& spec);

// Returns the request for a gang of `size`, which is 1 at least.
JobSpec OfSize(const JobSpec& spec, int32_t size);

// The least size that a queued job may be placed with, which has waited for
// `waited` in its state.
int32_t LeastSizeNow(const Job& job, Duration waited);

// Places the gang in the largest size between `least` and `most` for which
// there is room, in its last places if these are as many. `hosts` are those of
// its pool. nullopt: there is no room for `least`.
std::optional<std::vector<TaskPlacement>> PlaceFewer(
    const Job& job, int32_t least, int32_t most,
    const std::vector<HostCapacity>& hosts);

// Whether a RUNNING job has fewer tasks than it is to have.
bool WantsToGrow(const Job& job);

// How many tasks the job could have if it were placed again now: more than it
// has, or 0. Takes the room for them from `hosts`, which are those of all
// pools. `queue`: jobs that wait, in any order. There is no room while one of
// them wants it that has the same priority or a higher one. REQUIRES:
// WantsToGrow.
int32_t RoomFor(const Job& job, const std::vector<const Job*>& queue,
                std::vector<HostCapacity>* hosts);

// For a RUNNING job: restarts it with more or fewer tasks, if it is time for
// that. Does nothing, asks its ranks to save and to stop, or returns the cause
// for stopping the generation.
std::optional<Cause> ChangeSize(Job* job, const JobView& view, Time now);

// Sets how many tasks the job has at most, for user `who`. Without
// JobSpec::rescale, the others train on without those that are too many
// (held_back.h).
// InvalidArgument: not between JobSpec::elastic_min_tasks and the spec's size.
// FailedPrecondition: it has ended, or may not run with fewer tasks (reason
// FIXED_SIZE); or, without rescale, its program has not said that it can, or it
// has not this many tasks on any of its nodes together.
StatusOr<Job> ResizeTo(const Job& job, int32_t size, const std::string& who,
                       Time now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_RESCALE_H_
