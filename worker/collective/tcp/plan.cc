#include "worker/collective/tcp/plan.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <set>

namespace lockstep::worker::collective::tcp {
namespace {

constexpr size_t kMaxLimit = size_t{16} << 20;
constexpr size_t kMinChunk = 256;
constexpr int kMaxAhead = 64;
constexpr int kMaxMeshRanks = 64;

std::string Size(size_t bytes) {
  if (bytes % 1024 != 0) return fmt::format("{} B", bytes);
  return fmt::format("{} KiB", bytes / 1024);
}

// From where a ring is quicker than halving and doubling, up to what other
// operations have. Of another number of ranks than a power of two these send
// all bytes of a pair there and back beside, in two messages: a ring's longer
// way costs less, once its further messages do, here on a line that sends a
// segment in the time of one.
size_t HalvingBelow(int ranks, size_t doubling_below) {
  constexpr size_t kMost = 512 << 10;
  const int group = Group(ranks).size;
  if (group == ranks) return kMost;
  const int rounds = std::bit_width(static_cast<unsigned>(group)) - 1;
  const int more_messages = 2 * (ranks - 1) - 2 * rounds - 2;
  const double fewer_bytes = 2 - 2.0 / group + 2.0 / ranks;
  const double below = kSegment * more_messages / fewer_bytes;
  return below >= kMost ? kMost
                        : std::max(doubling_below, static_cast<size_t>(below));
}

}  // namespace

Plan MakePlan(int ranks, HostSharing sharing) {
  Plan plan;
  // What fits one segment goes in one exchange.
  plan.doubling_below = 64 << 10;
  // With two ranks a ring takes as many messages as halving and doubling.
  plan.halving_below = ranks == 2 ? plan.doubling_below
                                  : HalvingBelow(ranks, plan.doubling_below);
  // In a host a piece is there at once; on a line it is on its way for longer
  // than it is worked on, and more of them keep the line busy.
  plan.chunk = sharing == HostSharing::kAll ? kMostSent : kSegment;
  plan.ahead = sharing == HostSharing::kNone ? 2 : 1;
  plan.mesh_ranks = 16;
  return plan;
}

std::string PlanLine(const Plan& plan, int ranks) {
  return fmt::format(
      "tcp ranks={} doubling={} halving={} chunk={} ahead={} mesh={} "
      "streams={}",
      ranks, plan.doubling_below, plan.halving_below, plan.chunk, plan.ahead,
      plan.mesh_ranks, plan.streams);
}

Status CheckPlan(const Plan& plan) {
  const bool fits =
      plan.doubling_below <= kMaxLimit && plan.halving_below <= kMaxLimit &&
      plan.chunk >= kMinChunk && plan.chunk <= kMaxLimit &&
      plan.chunk % 64 == 0 && plan.ahead >= 1 && plan.ahead <= kMaxAhead &&
      plan.mesh_ranks >= 0 && plan.mesh_ranks <= kMaxMeshRanks &&
      plan.streams >= 1 && plan.streams <= kMaxStreams;
  return fits ? OkStatus() : InvalidArgument("its numbers are out of bounds");
}

StatusOr<Plan> ParsePlan(std::string_view line, int ranks) {
  Plan plan;
  int of = 0;
  const std::string text(line.substr(0, 256));
  if (std::sscanf(text.c_str(),
                  "tcp ranks=%d doubling=%zu halving=%zu chunk=%zu ahead=%d "
                  "mesh=%d streams=%d",
                  &of, &plan.doubling_below, &plan.halving_below, &plan.chunk,
                  &plan.ahead, &plan.mesh_ranks, &plan.streams) != 7 ||
      // Nothing else, and written in one way only: lines are compared.
      PlanLine(plan, of) != line || !CheckPlan(plan).ok()) {
    return InvalidArgument("\"{}\" is not a reduction plan for tcp", text);
  }
  if (of != ranks) {
    return InvalidArgument(
        "the reduction plan is for {} ranks over tcp, and here are {}", of,
        ranks);
  }
  return plan;
}

std::string DescribePlan(const Plan& plan, int ranks) {
  if (ranks == 1) return "tcp: one rank, nothing to exchange";
  std::string text = fmt::format("tcp: recursive doubling below {}",
                                 Size(plan.doubling_below));
  if (plan.halving_below > plan.doubling_below) {
    text += fmt::format(", recursive halving and doubling below {}",
                        Size(plan.halving_below));
  }
  text += fmt::format(", above it a ring in pieces of {}", Size(plan.chunk));
  if (plan.streams > 1) {
    text += fmt::format(" over {} connections with each peer", plan.streams);
  }
  return text;
}

Group::Group(int n) : ranks(n), size(1) {
  while (size * 2 <= n) size *= 2;
  extra = n - size;
}

int Group::MemberOf(int rank) const {
  if (rank >= 2 * extra) return rank - extra;
  return rank % 2 == 1 ? rank / 2 : -1;
}

int Group::RankOf(int member) const {
  return member < extra ? 2 * member + 1 : member + extra;
}

int Group::PairOf(int rank) const { return rank < 2 * extra ? rank ^ 1 : -1; }

int Group::FirstOf(int member) const {
  return member < extra ? 2 * member : member + extra;
}

std::vector<int> PeersOf(int rank, int ranks, const Plan& plan) {
  std::set<int> peers;
  if (ranks <= plan.mesh_ranks) {
    for (int peer = 0; peer < ranks; ++peer) peers.insert(peer);
  } else {
    peers.insert((rank + 1) % ranks);
    peers.insert((rank + ranks - 1) % ranks);
    const Group group(ranks);
    if (group.PairOf(rank) >= 0) peers.insert(group.PairOf(rank));
    const int member = group.MemberOf(rank);
    for (int bit = 1; member >= 0 && bit < group.size; bit *= 2) {
      peers.insert(group.RankOf(member ^ bit));
    }
  }
  peers.erase(rank);
  return {peers.begin(), peers.end()};
}

}  // namespace lockstep::worker::collective::tcp
