// Job::lineage: the generations whose checkpoints a job may resume from. Pure.
//
// A checkpoint of generation g at step s is alive while g is listed, did not
// begin after s, and no later generation began before s. The list must stay
// bounded: a job that is moved, evicted or held for months has many
// generations, and every node receives the whole list.
#ifndef LOCKSTEP_SERVER_CORE_LINEAGE_H_
#define LOCKSTEP_SERVER_CORE_LINEAGE_H_

#include <vector>

#include "server/core/job.h"

namespace lockstep::server {

// The most that a node passes to its ranks.
inline constexpr size_t kMaxLineage = 1000;

// Appends the generation that begins. Its first step is not known yet, except
// for the first generation. Removes the generation before it if none of its
// ranks ever started, because it saved nothing.
void AddGeneration(Job* job);

// Removes generations that can have no live checkpoint. If more than `most` are
// left, also removes the following, the oldest of each kind first: generations
// that are alive only at the step at which they began, which is a checkpoint of
// an earlier one; those that did not report where they began; all others. The
// last entry stays. REQUIRES: oldest first, most > 0.
void CompactLineage(std::vector<LineageEntry>* lineage,
                    size_t most = kMaxLineage);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_LINEAGE_H_
