// Jobs that leave a drained node. Pure; for lifecycle.cc and assignments.cc.
#ifndef LOCKSTEP_SERVER_CORE_MOVING_H_
#define LOCKSTEP_SERVER_CORE_MOVING_H_

#include <optional>
#include <string>

#include "server/core/job_view.h"

namespace lockstep {

// The drained node that gives the least time.
struct Departure {
  NodeName node;
  // "node b is drained by user/ann: new kernel".
  std::string why;
  Duration grace{};
  WallTime deadline{};
};

// Whether the current generation has to leave; several drains are one
// departure. nullopt: none of its nodes is drained, or none has a grace.
std::optional<Departure> MustLeave(const Job& job, const JobView& view);

// Its ranks have been told to save and to exit 0 at an agreed step.
bool IsToldToStop(const Job& job);

// The deciding rank's exit 0 was that stop, not the end of its work. A job
// that was told to stop at its very end is started once more, finds nothing
// left to do, and ends.
bool HasStoppedAsTold(const Job& job);

// What to do now about a RUNNING job that must leave: nothing, a directive
// (added to *job), or a cause to stop the generation with.
std::optional<Cause> Leave(Job* job, const JobView& view, Time now);

// Why a job that has stopped as told goes on elsewhere.
Cause MovedCause(const Job& job, const JobView& view);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_MOVING_H_
