// The rule which checkpoints may be deleted. PURE.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_RETENTION_H_
#define LOCKSTEP_WORKER_CHECKPOINT_RETENTION_H_

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/manifest.h"

namespace lockstep::worker::checkpoint {

struct RetentionPolicy {
  // The number of newest ones that stay; less than 1 means 1.
  int keep_last = 3;
  // Also stay: steps that are a multiple of this. 0: none. With a checkpoint
  // every 100 steps, 500 keeps every fifth.
  int64_t keep_every_steps = 0;
  // Also stay: these.
  std::set<CheckpointKey> pinned;
};

struct RetentionCandidate {
  CheckpointKey key;
  // It was read back whole. One that was not does not count as kept.
  bool verified = false;
};

// Returns the checkpoints to delete of `candidates` (any order), oldest first:
// those older than the `keep_last` newest verified ones on the lineage, except
// pinned ones. Checkpoints off the lineage stay: they are newer than the one
// that a generation resumed from, because a user ordered it or newer ones could
// not be used, and only a user knows that they are not wanted any more. If the
// lineage has no verified one, none is deleted.
std::vector<CheckpointKey> ChooseDeletions(
    std::span<const RetentionCandidate> candidates,
    std::span<const LineageEntry> lineage, const RetentionPolicy& policy);

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_RETENTION_H_
