// An operation of all ranks as operations within hosts and between them. Pure.
//
// It is cut in chunks, each in up to three stages: within the host, between
// the hosts, within the host. What a rank does in its host depends on nothing
// but the operation and the layout, so the ranks of a host agree on the order;
// the same holds for those that meet between the hosts. Each stage says what it
// is a part of: ranks whose operations differ are told so by the first stage
// in which they meet, though that may be the same on both.
//
//   all-reduce, equal hosts of L ranks: reduce-scatter in the host; each rank
//   reduces its slice with those of its place on the other hosts, all L at the
//   same time; all-gather in the host. 2 (H-1)/H of the bytes leave each host,
//   a part by each rank: (cf. NCCL's and Horovod's hierarchical all-reduce).
//   reduce-scatter, equal hosts whose ranks follow each other: as many bytes of
//   each host's block are reduce-scattered in the host; each rank
//   reduce-scatters what it has of all blocks with those of its place, (H-1)/H
//   of the bytes; the ranks of a host gather the block that is theirs.
//   all-reduce, small or unequal hosts: all-reduce in the host; the leaders
//   all-reduce; each broadcasts.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_STAGE_PLAN_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_STAGE_PLAN_H_

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "worker/collective/communicator.h"
#include "worker/collective/hierarchical/host_layout.h"

namespace lockstep {

// An all-reduce of fewer bytes goes through the leaders: fewer messages.
inline constexpr size_t kSmallBytes = 32 << 10;
// Of each rank's slice, between the hosts. Smaller chunks overlap better, each
// costs a latency.
inline constexpr size_t kSliceChunkBytes = 1 << 20;
// The most that Chunk::packed comes to.
constexpr size_t MostPackedBytes(int hosts) {
  return std::max(kSliceChunkBytes, static_cast<size_t>(hosts) * 8);
}

// A part of the user's slice, in elements from its buffer's start.
struct Piece {
  size_t offset = 0;
  size_t count = 0;
};

// Buffers are the user's; the communicator puts the one of the stage there.
struct Chunk {
  std::vector<Operation> before;  // within the host, one after the other
  // A mean of 16-bit floats: `reduced`, the host's mean, is to be multiplied by
  // this, the host's share of the ranks, before it goes between the hosts (1:
  // no).
  float weight = 1;
  // Between the hosts. Where `packed` is not empty it is of these pieces, one
  // of each host and equally long, side by side in memory of the communicator's
  // own (from its start, offset 0); and what comes of the piece of this rank's
  // host goes back to its place.
  std::optional<Operation> across;
  std::vector<Piece> packed;
  // A mean of wider floats: `reduced`, a sum so far, is to be divided by this
  // (0: no).
  int divide_by = 0;
  Piece reduced;
  std::optional<Operation> after;  // within the host
};

struct StagePlan {
  // Before all: bytes of the slice outside this rank's part are to be zeroed.
  bool zero_others = false;
  std::vector<Chunk> chunks;
};

// Whether this operation's last chunks may be between the hosts while the next
// operation's first ones are reduced within, where the next one may as well:
// both are reductions that are long enough to be worth a word between the ranks
// of a host. The same on all ranks.
inline constexpr size_t kOverlapBytes = 256 << 10;
bool MayOverlap(const HostLayout& layout, const Operation& operation);

// Of rank `rank`'s part in `operation`, which passed CheckOperation.
StagePlan PlanStages(const HostLayout& layout, int rank,
                     const Operation& operation);

// One line for people, the same on all ranks.
std::string DescribeStages(const HostLayout& layout);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_STAGE_PLAN_H_
