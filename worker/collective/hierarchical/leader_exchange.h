// An all-to-all over hosts of any numbers of ranks, in which the first rank of
// each host, its leader, carries what crosses hosts.
//
// The ranks of a host give their leader what they have for other hosts. The
// leaders exchange it, and each deals out what has come for its ranks. So what
// leaves a host does so once, and no other rank gets it on the way. What stays
// on a host goes from rank to rank, at the same time as the first bytes cross.
// Large operations go in rounds, each with a share of every part, for which a
// rank has at most two pieces of memory of kRoundBytes.
//
// A rank that is alone on its host, or does not lead it, copies nothing that
// lies side by side in its memory. Where hosts have equal numbers of ranks, all
// ranks carry (host_exchange.h).
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_LEADER_EXCHANGE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_LEADER_EXCHANGE_H_

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
class LeaderExchange {
 public:
  // `layout` and `sides` are borrowed.
  LeaderExchange(const HostLayout* layout, int rank, Sides* sides)
      : layout_(*layout), rank_(rank), sides_(*sides) {}

  // `operation` passed its checks; the leaders' communicator has an all-to-all,
  // if there are several hosts. Errors are those of the sides;
  // ResourceExhausted: no memory for a round.
  Status Run(const Operation& operation, MonoTime deadline);

 private:
  // From this host, or to it.
  enum class Way { kOut, kIn };
  // A rank of this host, by place, and one of another host.
  struct Route {
    int place = 0;
    int remote = 0;

    bool operator==(const Route&) const = default;
  };
  using Routes = std::vector<Route>;

  int local_size() const { return layout_.local_size(rank_); }
  bool leads() const { return layout_.leader(rank_); }
  size_t element() const { return SizeOf(operation_->slice.type); }

  Status GatherCounts();
  Status AgreeOnRounds();
  // The elements of a route: in the operation, and in the round under way.
  uint64_t CountOf(Way way, const Route& route) const;
  size_t InRound(Way way, const Route& route) const;
  size_t InRound(Way way, const Routes& routes) const;

  // By place, then by host.
  Routes ByPlace() const;
  // Between this host and `host`: by the place that it goes to, then by the one
  // that it comes from.
  Routes With(int host, Way way) const;
  Routes ByHost(Way way) const;
  // Lays out in the order `to` what lies at *data in the order `from`: at
  // *spare, and then exchanges the two; unless the orders are the same.
  void Reorder(Way way, const Routes& from, const Routes& to, char** data,
               char** spare) const;
  // This rank's memory for its parts with the ranks of `host`, or of all other
  // hosts.
  std::vector<PeerPart> OwnParts(Way way, int host) const;
  std::vector<PeerPart> OwnParts(Way way) const;

  // The round under way, of a rank that leads its host, that does not, and that
  // is alone there.
  Status RunLeader();
  Status RunFollower();
  Status RunAlone();
  // The stages of a round. On the host, from the others to the leader or back.
  Status Pass(Way way, const std::vector<PeerPart>& sends,
              const std::vector<PeerPart>& receives);
  // The most elements that a rank of the host sends in that stage.
  size_t MostPassed(Way way) const;
  // Also moves what stays on the host, in the first round.
  Status Cross(const std::vector<PeerPart>& sends,
               const std::vector<PeerPart>& receives);
  // All of what stays on the host.
  Status RunLocal();

  const HostLayout& layout_;
  const int rank_;
  Sides& sides_;
  // Of the operation that runs.
  const Operation* operation_ = nullptr;
  MonoTime deadline_;
  OperationWords part_of_;
  // By place: elements to each rank, then from each rank.
  std::vector<uint64_t> counts_;
  // At least the elements that leave a host or reach it; the same on all ranks.
  int64_t most_ = 0;
  uint64_t rounds_ = 1;
  uint64_t round_ = 0;
  Scratch first_;
  Scratch second_;
};

}  // namespace lockstep::worker::collective::hierarchical

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_LEADER_EXCHANGE_H_
