// Moves jobs away from a drained node. Pure; for lifecycle.cc and
// assignments.cc.
#ifndef LOCKSTEP_SERVER_CORE_MOVING_H_
#define LOCKSTEP_SERVER_CORE_MOVING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/core/job_view.h"

namespace lockstep::server {

// The drained node that gives the least time.
struct Departure {
  NodeName node;
  // "node b is drained by user/ann: new kernel".
  std::string why;
  Duration grace{};
  WallTime deadline{};
};

// Returns the departure of the current generation; several drains are one
// departure. nullopt if none of its nodes is drained with a grace.
std::optional<Departure> MustLeave(const Job& job, const JobView& view);

// Whether its ranks were asked to save and to exit with 0 at an agreed step.
bool IsAskedToStop(const Job& job);

// Whether the chief's exit 0 was that stop, not the end of its work. A
// job that was asked to stop at its very end starts once more, finds nothing
// left to do, and ends. The ranks of a program must have agreed on the step.
bool HasStoppedOnRequest(const Job& job, const JobView& view);

// Whether to wait for the other ranks of the group of a job that has stopped on
// request: they stop after the same step and may still save. Ends 15 s after
// the chief's exit, and at the departure's deadline.
bool OthersStillStop(const Job& job, const JobView& view, Time now);

// The ranks of a program's group that do not obey directives: their process has
// not joined (sdk/python, lockstep.join()), or it has left. None of a native
// job.
std::vector<int32_t> NotJoined(const Job& job, const JobView& view);

// For a RUNNING job that must leave: does nothing, adds a directive to *job, or
// returns the cause for stopping the generation.
std::optional<Cause> Leave(Job* job, const JobView& view, Time now);

// For a RUNNING program that has joined and is to be ended for `cause` since
// `late`: gives its ranks up to 30 s to save and to exit with 0 at an agreed
// step. Adds the directive to *job. False: there is nothing to wait for.
bool SaveBeforeTheEnd(Job* job, const JobView& view, const Cause& cause,
                      Duration late, Time now);

// Asks the ranks to save and to exit with 0 at an agreed step. False: they
// would not obey, and *job is unchanged.
bool AskToStop(Job* job, const JobView& view);

// Whether the ranks of a program that were asked at `since` have no common step
// to stop after, and had the time to find one.
bool DoesNotAgreeToStop(const Job& job, const JobView& view, WallTime since,
                        Time now);

// Returns why a job that stopped on request continues elsewhere, or with
// more or fewer tasks (rescale.h).
Cause MovedCause(const Job& job, const JobView& view);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_MOVING_H_
