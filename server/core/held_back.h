// The nodes of an elastic job (elastic.h) that it does without because a user
// wants fewer tasks (`lockstep jobs resize`). Pure; for replacing.cc.
//
// The tasks of a node stay together, so a node is held back as a whole: those
// that the job is without anyhow first, then those with the last tasks. What is
// held back is looked for again when the user wants more tasks.
#ifndef LOCKSTEP_SERVER_CORE_HELD_BACK_H_
#define LOCKSTEP_SERVER_CORE_HELD_BACK_H_

#include <cstddef>
#include <cstdint>
#include <set>

#include "common/base/status.h"
#include "server/core/job.h"

namespace lockstep::server {

// `lost`: nodes that the job is without anyhow. Empty: the job is to have all
// of its tasks, or is not elastic in place.
std::set<NodeName> NodesHeldBack(const Job& job,
                                 const std::set<NodeName>& lost);

// How many tasks of chief and workers a user wants the elastic job to have.
int32_t WantedInPlace(const Job& job);
// "2 tasks are wanted".
Cause WhatIsWanted(const Job& job);

// The number of ranks that are away (elastic.h), without those that a user does
// not want.
size_t MissedRanks(const Job& job);

// FailedPrecondition: the RUNNING job cannot have `size` tasks in its places,
// because its program has not said that it can train while ranks are away, or
// because the tasks of a node stay together.
Status CheckInPlace(const Job& job, int32_t size);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_HELD_BACK_H_
