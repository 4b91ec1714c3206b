// An elastic job of four ranks, for the tests of elastic.h and
// departing_nodes.h.
#ifndef LOCKSTEP_SERVER_CORE_ELASTIC_FIXTURE_H_
#define LOCKSTEP_SERVER_CORE_ELASTIC_FIXTURE_H_

#include <csignal>
#include <utility>
#include <vector>

#include "server/core/elastic.h"
#include "server/core/replacing_fixture.h"

namespace lockstep::server {

inline JobSpec Elastic(JobSpec spec, int32_t least) {
  spec.elastic_min_tasks = least;
  return spec;
}

// Four ranks on a, b, c and d, that train from two on; room on e.
class ElasticFixture : public ReplacingFixture {
 protected:
  explicit ElasticFixture(JobSpec spec = NativeSpec("j", 4))
      : ReplacingFixture(Elastic(std::move(spec), 2)) {
    SetElastic();
    s_.Settle();
  }

  void SetElastic() {
    for (const RankStatus* rank : RanksOf(s_.job)) {
      s_.Rank(rank->rank).elastic = true;
    }
  }
  void Kill(int32_t rank) {
    s_.Exited(rank, Signal(SIGKILL));
    s_.Settle();
  }
  const RankStatus& Stored(int32_t rank) const {
    return *RanksOf(s_.job)[static_cast<size_t>(rank)];
  }
  // The members have joined the newest recovery.
  void MembersJoin() {
    for (const RankStatus* rank : RanksOf(s_.job)) {
      if (rank->away) continue;
      RankStatus& status = s_.Rank(rank->rank);
      status.exit.reset();
      status.restarts = rank->restarts;
      status.state = RankState::kJoined;
      status.recovery = s_.job.recovery;
    }
    s_.Settle();
  }
  // The new process of the rank runs.
  RankStatus& Start(int32_t rank) {
    RankStatus& status = s_.Rank(rank);
    status = RankStatus();
    status.rank = rank;
    status.restarts = Stored(rank).restarts;
    status.state = RankState::kStarted;
    status.recoverable = true;
    status.elastic = true;
    s_.Gang(Task(rank).node).phase = GangPhase::kLaunched;
    s_.Settle();
    return s_.Rank(rank);
  }
  // It waits for a recovery in which it is a member.
  void Wait(int32_t rank) {
    s_.Rank(rank).parked = s_.job.recovery + 1;
    s_.Settle();
  }
  const TaskStatus& Task(int32_t rank) const {
    return s_.job.tasks[static_cast<size_t>(rank)];
  }
  std::vector<int32_t> Away() const { return AwayRanks(s_.job); }
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_ELASTIC_FIXTURE_H_
