// A rank's vote that its part of a checkpoint is durable. PURE.
//
// A vote is given after file and directory were synced, and never taken back.
// It names everything it is about, so that a late one cannot count for another
// checkpoint. The rank leaves it in its own directory as VOTE too: a chief that
// shares the directory can collect votes by CollectVotes (writer.h), and the
// network only needs to carry one bit a rank.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_VOTE_H_
#define LOCKSTEP_WORKER_CHECKPOINT_VOTE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/checkpoint/checksum.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/manifest.h"

namespace lockstep::worker::checkpoint {

struct Vote {
  AttemptKey attempt;
  uint32_t rank = 0;
  uint32_t world_size = 0;
  Cursor cursor;
  uint64_t state_hash = 0;
  // The rank's shard.
  FileSums shard;

  bool operator==(const Vote&) const = default;
};

// Text as in sealed_json.h: about 300 bytes and 9 for each 4 MiB of shard.
std::string EncodeVote(const Vote& vote);
// DataLoss for anything that EncodeVote did not make.
StatusOr<Vote> DecodeVote(std::string_view text);

// OK when `votes` hold exactly one vote of each rank of `world_size`, all
// about `attempt`, with one cursor and one state hash. FailedPrecondition
// names the ranks that are missing or differ: of two hashes that of the smaller
// group counts as wrong, and of two equal groups that of the one without rank
// 0.
Status CheckVotes(const AttemptKey& attempt, uint32_t world_size,
                  std::span<const Vote> votes);

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_VOTE_H_
