// A native job of four ranks whose nodes are lost and drained, for the tests of
// replacing.h and spares.h.
#ifndef LOCKSTEP_SERVER_CORE_REPLACING_FIXTURE_H_
#define LOCKSTEP_SERVER_CORE_REPLACING_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "server/core/assignments.h"
#include "server/core/replacing.h"
#include "server/core/scenes.h"
#include "server/core/spares.h"

namespace lockstep::server {

// Four ranks on a, b, c and d, and room on e.
class ReplacingFixture : public testing::Test {
 protected:
  explicit ReplacingFixture(JobSpec spec = NativeSpec("j", 4))
      : s_(std::move(spec)) {
    s_.Run({"a", "b", "c", "d"});
    for (int32_t rank = 0; rank < 4; ++rank) s_.Rank(rank).recoverable = true;
    s_.Settle();
    hosts_ = {Host("e", 8)};
  }

  // What the scheduler does.
  void Place() {
    std::vector<HostCapacity> hosts = hosts_;
    PlaceReplacements(&s_.job, know_, &hosts, s_.now);
    if (WantsSpares(s_.job)) PlaceSpares(&s_.job, know_, &hosts, s_.now);
    for (const Hold& hold : s_.job.holds) {
      JobView::Node& node = s_.view.nodes[hold.node];
      if (node.address.empty()) {
        node.state = NodeState::kReady;
        node.reported = true;
        node.address = "10.0.0.99";
      }
    }
  }

  // The new node reports that it has prepared `ranks`.
  void Prepare(const NodeName& node, const std::vector<int32_t>& ranks) {
    Report(node, ranks);
    s_.Settle();
  }
  // The same, before the coordinator looks at it.
  void Report(const NodeName& node, const std::vector<int32_t>& ranks) {
    GangStatus gang;
    gang.job = s_.job.spec.name;
    gang.job_uid = s_.job.uid;
    gang.generation = s_.job.generation;
    gang.phase = GangPhase::kPrepared;
    gang.master_port = 8999;
    for (const int32_t rank : ranks) {
      gang.ports.push_back(8000 + rank);
      RankStatus status;
      status.rank = rank;
      gang.ranks.push_back(status);
    }
    s_.view.nodes[node].gangs[s_.job.generation] = gang;
  }

  // All ranks run and have joined the newest recovery.
  void Join() {
    for (const RankStatus* rank : RanksOf(s_.job)) {
      RankStatus& status = s_.Rank(rank->rank);
      status = RankStatus();
      status.rank = rank->rank;
      status.restarts = rank->restarts;
      status.state = RankState::kJoined;
      status.recoverable = true;
      status.recovery = s_.job.recovery;
    }
    for (const NodeName& node : NodesOf(s_.job)) {
      s_.Gang(node).phase = GangPhase::kLaunched;
    }
    s_.Settle();
  }

  void Lose(const NodeName& node) {
    s_.view.nodes[node].state = NodeState::kLost;
    s_.Settle();
  }

  void DrainNode(const NodeName& node, Duration grace) {
    Drain drain;
    drain.grace = grace;
    drain.time = s_.now.wall;
    drain.requester = "user/ann";
    drain.reason = "new kernel";
    s_.view.nodes[node].drain = drain;
    s_.Settle();
  }

  Assignment Told(const NodeName& node) {
    const auto all =
        DesiredAssignments(s_.job, s_.view, node, StopGraces{}, s_.now);
    return all.empty() ? Assignment() : all.front();
  }

  bool Holds(const NodeName& node) {
    return std::any_of(s_.job.holds.begin(), s_.job.holds.end(),
                       [&](const Hold& hold) { return hold.node == node; });
  }

  Scene s_;
  std::vector<HostCapacity> hosts_;
  std::set<NodeName> know_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_REPLACING_FIXTURE_H_
