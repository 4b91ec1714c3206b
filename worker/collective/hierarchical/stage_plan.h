// An operation of all ranks as operations within hosts and between them. Pure.
//
// It is cut in chunks, each in up to three stages: within the host, between the
// hosts, within the host. The stages of a rank in its host depend on the
// operation and the layout alone, so the ranks of a host agree on the order;
// the same holds for the ranks that meet between the hosts. Each stage carries
// the operation that it is a part of: ranks whose operations differ find out in
// the first stage in which they meet, though that stage may be the same for
// both.
//
//  all-reduce, equal hosts of L ranks: reduce-scatter in the host; each rank
//  reduces its slice with the ranks of its place on the other hosts, all L at
//  the same time; all-gather in the host. 2 (H-1)/H of the bytes leave each
//  host, a part by each rank (cf. NCCL's and Horovod's hierarchical
//  all-reduce).
//  reduce-scatter, equal hosts of consecutive ranks: the same number of bytes
//  of each host's block is reduce-scattered in the host; each rank
//  reduce-scatters its part of all blocks with the ranks of its place, (H-1)/H
//  of the bytes; the ranks of a host gather the block that is theirs.
//  all-reduce, small or unequal hosts: all-reduce in the host; the leaders
//  all-reduce; each broadcasts.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_STAGE_PLAN_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_STAGE_PLAN_H_

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "worker/collective/communicator.h"
#include "worker/collective/hierarchical/host_layout.h"

namespace lockstep::worker::collective::hierarchical {

// An all-reduce of fewer bytes goes through the leaders: fewer messages.
inline constexpr size_t kSmallBytes = 32 << 10;
// Bytes of a rank's slice that go between the hosts at a time. Smaller chunks
// overlap better, but each costs a latency.
inline constexpr size_t kSliceChunkBytes = 1 << 20;
// The largest size of Chunk::packed.
constexpr size_t MostPackedBytes(int hosts) {
  return std::max(kSliceChunkBytes, static_cast<size_t>(hosts) * 8);
}

// A part of the user's slice, in elements from its buffer's start.
struct Piece {
  size_t offset = 0;
  size_t count = 0;
};

// Buffers are the user's; the communicator replaces them by those of the stage.
struct Chunk {
  std::vector<Operation> before;  // within the host, one after the other
  // For a mean of 16-bit floats: the factor for `reduced`, the host's mean,
  // before it goes between the hosts. It is the host's share of the ranks. 1:
  // none.
  float weight = 1;
  // Between the hosts. Where `packed` is not empty, the operation is on these
  // pieces, one of each host and of equal length, side by side in memory of the
  // communicator's own (from its start, offset 0). The piece of this rank's
  // host goes back to its place afterwards.
  std::optional<Operation> across;
  std::vector<Piece> packed;
  // For a mean of wider floats: the divisor for `reduced`, a sum so far. 0:
  // none.
  int divide_by = 0;
  Piece reduced;
  std::optional<Operation> after;  // within the host
};

struct StagePlan {
  // First zero the bytes of the slice outside this rank's part.
  bool zero_others = false;
  std::vector<Chunk> chunks;
};

// Whether this operation's last chunks may be between the hosts while the next
// operation's first ones are reduced within, if the next one may overlap as
// well. True for reductions that are long enough to be worth an agreement
// between the ranks of a host. The same on all ranks.
inline constexpr size_t kOverlapBytes = 256 << 10;
bool MayOverlap(const HostLayout& layout, const Operation& operation);

// Returns rank `rank`'s part in `operation`, which passed CheckOperation.
StagePlan PlanStages(const HostLayout& layout, int rank,
                     const Operation& operation);

// One line for people, the same on all ranks.
std::string DescribeStages(const HostLayout& layout);

}  // namespace lockstep::worker::collective::hierarchical

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_STAGE_PLAN_H_
