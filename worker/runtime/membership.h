// The ranks of a job that form the communicator, and the shards of the global
// batch that each of them computes (docs/design/recovery.md, "Smaller for a
// while"). PURE.
//
// The communicator numbers its ranks densely, in the order of their ranks in
// the job: a member's number there is its place.
#ifndef LOCKSTEP_WORKER_RUNTIME_MEMBERSHIP_H_
#define LOCKSTEP_WORKER_RUNTIME_MEMBERSHIP_H_

#include <span>
#include <string>
#include <vector>

namespace lockstep::worker::runtime {

struct Membership {
  int world_size = 1;
  // Ranks, ascending.
  std::vector<int> members = {0};
  // Of this rank; -1: it is away.
  int place = 0;
  // By place: the member's own shard first, then those of ranks that are away.
  // The shard of a rank has its number.
  std::vector<std::vector<int>> shards = {{0}};

  int size() const { return static_cast<int>(members.size()); }
  bool complete() const { return size() == world_size; }
  // None where this rank is away.
  const std::vector<int>& own_shards() const;
  // The longest list of shards that a member has.
  int rounds() const;
  // The ranks at `places`; those that no member has are left out.
  std::vector<int> RanksAt(std::span<const int> places) const;

  bool operator==(const Membership&) const = default;
};

// For rank `rank` of `world_size`, while the ranks `away`, ascending, are not
// members. The j-th of them is computed by member j modulo their number.
// REQUIRES: at least one rank is a member.
Membership MembersWithout(std::span<const int> away, int world_size, int rank);

// Whether ranks return in `next`, and no member of `now` is lost.
bool IsReturn(const Membership& now, const Membership& next);

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_MEMBERSHIP_H_
