// Writing a checkpoint: the steps that touch the disk, each a function. They
// block: AsyncWriter calls them on its thread.
//
// 1. Every rank calls WriteRank: its shard goes to its own directory inside
//    the staging directory, the file is synced, then it votes.
// 2. The chief has all votes (sent to it, or from CollectVotes) and calls
//    Publish: votes compared, shards moved together, MANIFEST written, all
//    synced, the directory renamed to its final name, its parent synced.
// Before that rename no part is visible, after it everything is durable.
//
// A crash at any point leaves a staging directory that TakeOver (cleanup.h)
// removes, and all older checkpoints as they were. Errors name the operation
// and the path.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_WRITER_H_
#define LOCKSTEP_WORKER_CHECKPOINT_WRITER_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/checkpoint/checksum.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/shard.h"
#include "worker/checkpoint/snapshot.h"
#include "worker/checkpoint/vote.h"

namespace lockstep::worker::checkpoint {

// Fault points, in the order in which the writer passes them: the first group
// on every rank, the second on the chief.
inline constexpr const char* kRankFaultPoints[] = {
    "checkpoint.rank.begin",        // nothing yet
    "checkpoint.rank.made_dir",     // its directory is there
    "checkpoint.rank.created",      // an empty shard
    "checkpoint.rank.written",      // not synced
    "checkpoint.rank.before_vote",  // synced, without a vote
    "checkpoint.rank.voted",        // VOTE is there
};
inline constexpr const char* kChiefFaultPoints[] = {
    "checkpoint.publish.begin",
    "checkpoint.publish.moved",  // passed once a rank
    "checkpoint.publish.before_manifest",
    "checkpoint.publish.manifest_created",
    "checkpoint.publish.manifest_written",
    "checkpoint.publish.manifest_synced",
    "checkpoint.publish.staging_synced",  // whole, under a temporary name
    "checkpoint.publish.renamed",         // the parent is not synced
    "checkpoint.publish.durable",
    "checkpoint.publish.latest",
};

// The chief of replicas gives all tensors; the others none, only blobs (their
// random number generator) and the same `state_hash`.
struct WriteRequest {
  ShardId shard;
  Cursor cursor;
  uint64_t state_hash = 0;
};

// Times of writing a rank's part.
struct WriteTimes {
  Duration write{};
  Duration sync{};
};

// Writes the rank's part. Makes `root`, durably, if it is missing. Calls
// `should_stop` (may be empty) between blocks. After an error the rank's
// directory is removed as far as possible. `times` may be null; it is set on
// success.
StatusOr<Vote> WriteRank(FileSystem* fs, const std::string& root,
                         const WriteRequest& request, const Snapshot& snapshot,
                         const ShouldStop& should_stop,
                         WriteTimes* times = nullptr);

// Returns the votes in the staging directory of `attempt` so far. Leaves out
// ranks whose vote is missing or damaged.
std::vector<Vote> CollectVotes(FileSystem* fs, const std::string& root,
                               const AttemptKey& attempt, uint32_t world_size);

struct PublishRequest {
  std::string job;
  AttemptKey attempt;
  uint32_t world_size = 0;
  std::vector<LineageEntry> lineage;
  std::map<std::string, std::string> metadata;
  std::string written;  // Manifest::written.
};

// Returns the path of the complete checkpoint. FailedPrecondition: votes are
// missing or differ (CheckVotes), a file has another size than was voted, or a
// newer generation took over the directory. When this very checkpoint is
// complete already, that is success. After an error before the rename the
// staging directory is removed as far as that is possible.
StatusOr<std::string> Publish(FileSystem* fs, const std::string& root,
                              const PublishRequest& request,
                              std::span<const Vote> votes,
                              const ShouldStop& should_stop);

// Gives an attempt up: removes its staging directory.
Status Discard(FileSystem* fs, const std::string& root,
               const AttemptKey& attempt);

// The same for one rank's directory.
Status DiscardRank(FileSystem* fs, const std::string& root,
                   const AttemptKey& attempt, uint32_t rank);

// Makes `path` with its parents so that they survive a power loss.
Status MakeDirsDurable(FileSystem* fs, const std::string& path);

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_WRITER_H_
