// Which algorithm an operation uses, and which ranks are connected. Rank 0
// makes the plan and publishes it; all ranks of a communicator follow the same
// plan, so the same operands are combined in the same order. Pure.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_PLAN_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_PLAN_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace lockstep::worker::collective::tcp {

// One segment of the loopback, whose MSS is 65,483 bytes with IPv4 and 65,463
// with IPv6. Handing 128 bytes more to the kernel at a time would make a
// second, tiny segment each time.
inline constexpr size_t kSegment = 65408;
// The most bytes that are handed to the kernel at a time. More bytes mean fewer
// calls, each of which takes and gives back the socket's lock; too many leave
// the cache.
inline constexpr size_t kMostSent = 4 * kSegment;
inline constexpr size_t kMostReceived = 2 * kSegment;

// Connections with each peer at most.
inline constexpr int kMaxStreams = 8;

struct Plan {
  // All-reduce in bytes: recursive doubling below the first, recursive
  // halving and doubling below the second, else a ring. Other operations: a
  // tree below the second, else a ring or a chain.
  size_t doubling_below = 0;
  size_t halving_below = 0;
  // Bytes of one piece of a ring or chain, and how many pieces a ring is
  // ahead of what it has received.
  size_t chunk = 0;
  int ahead = 1;
  // Up to this many ranks all ranks are connected with each other, which the
  // exchange of 16-bit operands needs.
  int mesh_ranks = 0;
  // Connections with each peer, over which large transfers are spread. Several
  // help where a single flow gets less than the line has: bonded links and
  // equal-cost paths put a flow on one of them, some networks limit each flow,
  // and a host whose network card spreads flows over cores receives several
  // flows on several cores. They do not help on one plain line, and the copies
  // of a rank stay in one thread. No result depends on them.
  int streams = 1;

  bool operator==(const Plan&) const = default;
};

// Whether some of the ranks share a host, or all share one.
enum class HostSharing { kNone, kSome, kAll };
// The measured defaults.
Plan MakePlan(int ranks, HostSharing sharing);

// Communicator::ReductionPlan: "tcp ranks=4 doubling=65536 ...", from which
// ParsePlan makes the same plan. InvalidArgument: the line is not a plan, is
// out of bounds, or is for another number of ranks.
std::string PlanLine(const Plan& plan, int ranks);
StatusOr<Plan> ParsePlan(std::string_view line, int ranks);
// Checks the numbers of a plan from any source. Errors as for ParsePlan.
Status CheckPlan(const Plan& plan);

// Communicator::Plan: in words.
std::string DescribePlan(const Plan& plan, int ranks);

// The group of recursive halving has the largest power of two of ranks. The
// first 2 * (ranks - group) ranks form pairs, in which the upper one acts for
// both.
struct Group {
  explicit Group(int ranks);
  // A rank's number in the group; -1: another rank acts for it.
  int MemberOf(int rank) const;
  int RankOf(int member) const;
  // The other rank of `rank`'s pair; -1: it has none.
  int PairOf(int rank) const;
  // The first rank for which `member` acts.
  int FirstOf(int member) const;

  int ranks;
  int size;
  int extra;  // ranks - size
};

// The ranks that `rank` has connections with, ascending: O(log ranks), or all
// where there are few.
std::vector<int> PeersOf(int rank, int ranks, const Plan& plan);

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_PLAN_H_
