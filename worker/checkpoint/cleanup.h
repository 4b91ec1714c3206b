// Work on a checkpoint directory as a whole: taking it over, removing leftovers
// and old checkpoints. Only the chief of a generation calls these.
//
// Deleting is: rename to ".trash-NAME", sync, unlink. A crash in between leaves
// trash, never half a checkpoint under a good name.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_CLEANUP_H_
#define LOCKSTEP_WORKER_CHECKPOINT_CLEANUP_H_

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/retention.h"

namespace lockstep::worker::checkpoint {

// Returns the directories named like complete checkpoints, oldest first; none
// when `root` is missing. Ignores other files.
StatusOr<std::vector<CheckpointKey>> ListCheckpoints(FileSystem* fs,
                                                     const std::string& root);

// Marks the directory as `job`'s in generation `generation`, so that an older
// chief that is cut off but still runs neither publishes nor deletes, then
// calls Sweep. Once per generation, before FindNewest and any checkpoint.
//
// Files of another job, or of an earlier one of the same name (in generation 1
// no file can be this job's), are kept as ".old-NAME" and never restored.
// Returns those names. FailedPrecondition: a newer generation was here, so this
// one is over.
StatusOr<std::vector<std::string>> TakeOver(FileSystem* fs,
                                            const std::string& root,
                                            const std::string& job,
                                            uint64_t generation);

// FailedPrecondition when another job or a generation newer than `generation`
// took over.
Status CheckFence(FileSystem* fs, const std::string& root,
                  const std::string& job, uint64_t generation);

// Renames `name` in `root` to prefix + name, with ".2", ".3" ... appended
// where that is taken, durably. Returns the new name.
StatusOr<std::string> KeepAs(FileSystem* fs, const std::string& root,
                             const std::string& name, std::string_view prefix);

// Removes trash, half-written hints, and staging directories of generations up
// to `generation`, except `in_flight`. Goes on when it cannot remove one, and
// returns the first error.
Status Sweep(FileSystem* fs, const std::string& root, uint64_t generation,
             const std::optional<AttemptKey>& in_flight);

// Notes for later processes that the checkpoint was read back whole. A job whose
// rank 0 is replaced often would otherwise never delete one. The note is not
// synced: without it the checkpoint only stays longer.
Status NoteReadBack(FileSystem* fs, const std::string& root,
                    const CheckpointKey& key);

// Deletes the checkpoints of ChooseDeletions, as generation `generation`. Keys
// in `verified` count as read back, and those of NoteReadBack. Returns the
// deleted ones.
StatusOr<std::vector<CheckpointKey>> ApplyRetention(
    FileSystem* fs, const std::string& root, const std::string& job,
    uint64_t generation, std::span<const LineageEntry> lineage,
    const std::set<CheckpointKey>& verified, const RetentionPolicy& policy);

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_CLEANUP_H_
