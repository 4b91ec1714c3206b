// An all-to-all over hosts with equal numbers of ranks, in two stages.
//
// Within each host, rank p gives to the rank of place q what it has for the
// ranks of place q on all hosts. Then the ranks of each place exchange what
// they have for each other's hosts. So what leaves a host does so once and by
// all its ranks, and what stays goes to its place at once. Large operations go
// in rounds, each with a share of every part.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HOST_EXCHANGE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HOST_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/hierarchical/exchange_parts.h"
#include "worker/collective/hierarchical/host_layout.h"
#include "worker/collective/hierarchical/sides.h"

namespace lockstep::worker::collective::hierarchical {

// Used by the thread that executes.
class HostExchange {
 public:
  // Both are borrowed.
  HostExchange(const HostLayout* layout, int rank, Sides* sides)
      : layout_(*layout), rank_(rank), sides_(*sides) {}

  // Whether it is for these hosts; else LeaderExchange is.
  static bool Fits(const HostLayout& layout) {
    return layout.equal && layout.hosts() > 1 && layout.hosts() < layout.size();
  }
  // `operation` passed its checks; the ranks of each place have an all-to-all.
  // Errors are those of the sides;
  // ResourceExhausted: no memory for a round.
  Status Run(const Operation& operation, MonoTime deadline);

 private:
  // Elements that the rank of `place` on this host sends to one of another
  // place, maybe on another host. Its row of counts_ has one number for each
  // rank, and behind them the elements that it receives from other hosts.
  uint64_t Sends(int place, int host, int to) const {
    return counts_[place * (layout_.size() + 1) + layout_.ranks[host][to]];
  }
  Status GatherCounts(const Operation& operation, MonoTime deadline);
  // The most elements that a rank passes on or gets between the hosts, of all.
  StatusOr<uint64_t> AgreeOnMost(const Operation& operation, MonoTime deadline);
  Status RunRound(const Operation& operation, uint64_t most, uint64_t round,
                  MonoTime deadline);
  Status RunWithin(const Operation& operation, int host, uint64_t round,
                   char* staged, MonoTime deadline);
  Status RunBetween(const Operation& operation, uint64_t most, uint64_t round,
                    MonoTime deadline);
  void Unpack(const Operation& operation, uint64_t round) const;
  // Elements that this rank passes on to the ranks of its place on `host`.
  size_t PassedOn(int host, uint64_t round) const;

  const HostLayout& layout_;
  const int rank_;
  Sides& sides_;
  // Of the operation that runs.
  OperationWords part_of_;
  std::vector<uint64_t> counts_;
  uint64_t rounds_ = 1;
  Scratch passed_;    // by host, then by the place that it came from
  Scratch received_;  // the same
};

}  // namespace lockstep::worker::collective::hierarchical

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HOST_EXCHANGE_H_
