// Which algorithm an operation takes, and whom a rank is connected with. Rank
// 0 makes the plan and publishes it; all ranks of a communicator follow the
// same, so the same operands are combined in the same order. Pure.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_PLAN_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_PLAN_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace lockstep::tcp {

// One segment of the loopback, whose MSS is 65,483 bytes with IPv4 and 65,463
// with IPv6. Where 128 bytes more are handed to the kernel at a time, each
// makes a second, tiny segment.
inline constexpr size_t kSegment = 65408;
// What is handed to the kernel at a time, at most: fewer calls, each of which
// takes and gives back the socket's lock. More of them leave the cache.
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
  // Up to so many ranks everybody is connected with everybody, which the
  // exchange of 16-bit operands needs.
  int mesh_ranks = 0;
  // Connections with each peer, over which large transfers are spread. More
  // than one help where a single flow gets less than the line has: bonded
  // links and equal-cost paths put a flow on one of them, some networks limit
  // each flow, and a host whose network card spreads flows over cores receives
  // several flows on several cores. They help nothing on one plain line, and
  // the copies of a rank stay in one thread. No result depends on it.
  int streams = 1;

  bool operator==(const Plan&) const = default;
};

// Whether ranks share a host: some with some, or all one.
enum class HostSharing { kNone, kSome, kAll };
// The measured defaults.
Plan MakePlan(int ranks, HostSharing sharing);

// Communicator::ReductionPlan: "tcp ranks=4 doubling=65536 ...", from which
// ParsePlan makes the same plan. InvalidArgument: the line is no plan, out of
// bounds, or of another number of ranks.
std::string PlanLine(const Plan& plan, int ranks);
StatusOr<Plan> ParsePlan(std::string_view line, int ranks);
// As a line's, of numbers from anywhere.
Status CheckPlan(const Plan& plan);

// Communicator::Plan: in words.
std::string DescribePlan(const Plan& plan, int ranks);

// The group of recursive halving has the largest power of two of ranks. The
// first 2 * (ranks - group) ranks form pairs, in which the upper one acts for
// both.
struct Group {
  explicit Group(int ranks);
  // A member's number in the group, -1 for a rank that another acts for.
  int MemberOf(int rank) const;
  int RankOf(int member) const;
  // The other one of `rank`'s pair, -1 without.
  int PairOf(int rank) const;
  // The ranks for which `member` acts: [first, first + count).
  int FirstOf(int member) const;

  int ranks;
  int size;
  int extra;  // ranks - size
};

// The ranks that `rank` has connections with, ascending: O(log ranks), or all
// where there are few.
std::vector<int> PeersOf(int rank, int ranks, const Plan& plan);

}  // namespace lockstep::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_PLAN_H_
