// Which generations a checkpoint may be of that a job resumes from: what of
// Job::lineage is kept. Pure.
//
// A checkpoint of generation g at step s is alive while g is listed, did not
// begin after s, and no later generation began before s. So the list says what
// a job may resume from, and it must not grow for ever: a job that is moved,
// evicted or held for months has many generations, and each node is told all.
#ifndef LOCKSTEP_SERVER_CORE_LINEAGE_H_
#define LOCKSTEP_SERVER_CORE_LINEAGE_H_

#include <vector>

#include "server/core/job.h"

namespace lockstep {

// As many as a node tells its ranks.
inline constexpr size_t kMaxLineage = 1000;

// Appends the generation that begins, which is not placed yet: where it goes on
// is not known, but of the first one. The one before it leaves its place if no
// rank of it was ever started: it saved nothing.
void AddGeneration(Job* job);

// Takes out what no checkpoint can be alive of any more. Where more than `most`
// are left, in this order, the oldest of each first: generations that are alive
// at the step that they began at alone, which is a checkpoint of an earlier
// one's; those that did not say where they began; the others, whose checkpoints
// are the oldest. The last entry stays. REQUIRES: oldest first, most > 0.
void CompactLineage(std::vector<LineageEntry>* lineage,
                    size_t most = kMaxLineage);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_LINEAGE_H_
