// Whatever nodes say, in whatever order: the rules of every state hold.
// Scene::Settle checks them after each decision.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "server/core/assignments.h"
#include "server/core/replacing.h"
#include "server/core/spares.h"
#include "server/core/testing.h"

namespace lockstep::server {
namespace {

// Draws reports without sense as readily as sensible ones.
class Chaos {
 public:
  Chaos(uint32_t seed, JobSpec spec)
      : random_(seed),
        scene_(std::move(spec)),
        recoverable_(scene_.job.spec.kind == JobKind::kNative &&
                     seed % 3 != 0) {}

  Scene& scene() { return scene_; }
  int Upto(int n) { return static_cast<int>(random_() % n); }

  void Act() {
    Job& job = scene_.job;
    if ((job.state == JobState::kQueued || job.state == JobState::kPlacing) &&
        Upto(3) == 0 && !job.cancel_requested) {
      std::vector<NodeName> nodes;
      for (const RoleSpec& role : job.spec.roles) {
        for (int i = 0; i < role.count; ++i) nodes.push_back(AnyNode());
      }
      return scene_.Put(nodes);
    }
    if (WantsPlaces(job) || WantsSpares(job)) PlaceNewNodes();
    switch (Upto(9)) {
      case 0:
        return scene_.Advance(std::chrono::milliseconds(Upto(20000)));
      case 1:
        if (Upto(40) == 0) job = Cancel(job, "user/ann", scene_.now);
        return;
      case 2:
        if (Upto(2) == 0) PrepareNewNodes();
        return ChangeNode();
      case 3:
        if (!job.tasks.empty()) scene_.Prepared();
        return;
      case 4:
        if (Upto(3) == 0) scene_.AllStopped();
        return;
      default:
        if (!job.tasks.empty()) ChangeRank();
    }
  }

 private:
  NodeName AnyNode() {
    return std::string(1, static_cast<char>('a' + Upto(4)));
  }

  // As the scheduler does where e and f have room.
  void PlaceNewNodes() {
    std::vector<HostCapacity> hosts = {Host("e", 16), Host("f", 16)};
    Job& job = scene_.job;
    PlaceReplacements(&job, {}, &hosts, scene_.now);
    if (WantsSpares(job)) PlaceSpares(&job, {}, &hosts, scene_.now);
  }

  // They report that they have prepared, some of them for other tasks, or
  // without all ports.
  void PrepareNewNodes() {
    const Job& job = scene_.job;
    for (const NodeName name : {"e", "f"}) {
      const Replacement* replacement = ReplacementOn(job, name);
      const Spare* spare = SpareOn(job, name);
      if (replacement == nullptr && spare == nullptr) continue;
      const NodeName& like =
          replacement == nullptr ? spare->like : replacement->from;
      JobView::Node& node = scene_.view.nodes[name];
      node.state = NodeState::kReady;
      node.reported = true;
      node.address = "10.0.0.8";
      GangStatus& gang = node.gangs[job.generation];
      gang.phase = static_cast<GangPhase>(1 + Upto(2));
      if (Upto(30) == 0) gang.phase = GangPhase::kRefused;
      gang.ports.clear();
      gang.ranks.clear();
      for (const TaskStatus& task : job.tasks) {
        if (task.node != (Upto(10) == 0 ? "a" : like)) continue;
        if (Upto(10) > 0) gang.ports.push_back(8000);
        for (const RankStatus& rank : task.ranks) {
          gang.ranks.emplace_back().rank = rank.rank;
        }
      }
    }
  }

  void ChangeNode() {
    JobView::Node& node = scene_.view.nodes[AnyNode()];
    node.address = "10.0.0.9";
    node.reported = Upto(4) > 0;
    node.state = static_cast<NodeState>(1 + (Upto(12) == 0 ? Upto(3) : 0));
    node.clock_offset = std::chrono::milliseconds(Upto(20000) - 10000);
    if (Upto(20) == 0) node.gangs.clear();
    for (auto& [generation, gang] : node.gangs) {
      gang.phase = static_cast<GangPhase>(1 + Upto(6));
      if (Upto(10) == 0) gang.refusal = {Reason::kNodeLost, "forgot"};
      if (Upto(10) == 0) gang.resumed_step = Upto(100) - 1;
      if (Upto(10) == 0) gang.ports.clear();
      if (Upto(4) == 0) gang.service_ports.clear();
      if (Upto(4) == 0) gang.outputs.resize(static_cast<size_t>(Upto(3)));
      if (Upto(10) == 0) gang.refusal = {Reason::kPortTaken, "taken"};
      gang.preparations.resize(static_cast<size_t>(Upto(4)));
      for (TaskPreparation& preparation : gang.preparations) {
        preparation.current = Upto(2) == 0 ? kFetchPart : kPortsPart;
        preparation.parts = {
            {std::string(kFetchPart), std::chrono::seconds(Upto(100) - 10)}};
      }
      gang.directive_done = static_cast<uint32_t>(Upto(5));
      if (Upto(5) == 0) {
        gang.checkpoint =
            Checkpoint{Upto(50), generation + Upto(2), "/out", {}, 1};
      }
      gang.events.push_back({static_cast<uint32_t>(Upto(9)), Upto(5),
                             scene_.now.wall, Reason::kNone, "hello"});
      if (gang.events.size() > 5) gang.events.clear();
    }
  }

  void ChangeRank() {
    auto ranks = RanksOf(scene_.job);
    const RankStatus& stored = *ranks[Upto(ranks.size())];
    RankStatus& rank = scene_.Rank(stored.rank);
    rank.state = static_cast<RankState>(1 + Upto(4));
    rank.progress.committed_step = Upto(60);
    rank.restarts = Upto(4) == 0 ? Upto(4) : stored.restarts;
    if (recoverable_) {
      const auto recovery = scene_.job.recovery;
      // Else hardly any gang would run with all of its ranks.
      if (Upto(4) > 0) rank.state = RankState::kJoined;
      rank.recoverable = Upto(20) > 0;
      rank.recovery = Upto(3) > 0 ? recovery : static_cast<uint32_t>(Upto(4));
      rank.parked = Upto(8) == 0 ? recovery + 1 : 0;
    }
    if (Upto(100) == 0) {
      Stall stall;
      stall.rank = Upto(4) - 1;
      stall.phase = "compute";
      scene_.view.stall = stall;
    } else {
      scene_.view.stall.reset();
    }
    if (rank.state != RankState::kExited) {
      rank.exit.reset();
      return;
    }
    if (recoverable_ && Upto(4) > 0) {
      rank.exit = Signal(9);
      rank.exit->end_time = scene_.now.wall;
      return;
    }
    static constexpr int32_t kCodes[] = {0, 0, 1, 2, 42, 42, 75, 137};
    rank.exit = Upto(4) == 0 ? Signal(1 + Upto(31)) : Code(kCodes[Upto(8)]);
    if (Upto(8) == 0) rank.exit->reason = Reason::kPortTaken;
    rank.exit->victim = Upto(2) == 0;
    rank.exit->end_time = scene_.now.wall;
  }

  std::mt19937 random_;
  Scene scene_;
  // Native ranks that may be replaced.
  const bool recoverable_;
};

TEST(LifecyclePropertyTest, RulesHoldWhateverIsReported) {
  std::map<JobState, int> ends;
  Generation generations = 0;
  int restarted_alone = 0;
  int recoveries = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    JobSpec spec = seed % 2 == 0 ? NativeSpec("j", 3)
                                 : ProgramSpec("j", {Role(TaskType::kChief, 1),
                                                     Role(TaskType::kWorker, 1),
                                                     Role(TaskType::kPs, 1)});
    spec.restart_worker_alone = true;
    spec.restart_budget = static_cast<int32_t>(seed % 5);
    if (seed % 7 == 0) spec.max_running_time = std::chrono::minutes(5);
    spec.spares = static_cast<int32_t>(seed % 3);
    Chaos chaos(seed, std::move(spec));
    for (int step = 0; step < 400; ++step) {
      chaos.Act();
      chaos.scene().Settle();
      if (testing::Test::HasFatalFailure()) {
        FAIL() << "seed " << seed << " step " << step;
      }
    }
    ++ends[chaos.scene().job.state];
    generations += chaos.scene().job.generation;
    recoveries += chaos.scene().job.recoveries;
    for (const Event& event : chaos.scene().job.events) {
      if (event.reason == Reason::kWorkerRestarted) ++restarted_alone;
    }
  }
  // It got about.
  EXPECT_GT(ends[JobState::kSucceeded], 10);
  EXPECT_GT(ends[JobState::kFailed], 10);
  EXPECT_GT(ends[JobState::kCancelled], 10);
  EXPECT_GT(restarted_alone, 3);
  EXPECT_GT(recoveries, 40);
  EXPECT_GT(generations, 800u);
}

// A node is told again only where NodesToUpdate names it.
TEST(LifecyclePropertyTest, NobodyMissesAnAssignment) {
  int told = 0, spared = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Chaos chaos(seed, seed % 2 == 0
                          ? NativeSpec("j", 3)
                          : ProgramSpec("j", {Role(TaskType::kChief, 1),
                                              Role(TaskType::kWorker, 2)}));
    Scene& s = chaos.scene();
    s.job.spec.restart_worker_alone = true;
    s.job.spec.spares = static_cast<int32_t>(seed % 3);
    const auto wanted = [&](const Job& job, const NodeName& node) {
      return DesiredAssignments(job, s.view, node, StopGraces{}, s.now);
    };
    for (int step = 0; step < 200; ++step) {
      chaos.Act();
      for (const NodeName& node : NodesOf(s.job)) s.view.nodes[node];
      const Job before = s.job;
      const Job after = Decide(before, s.view, s.timeouts, s.now);
      const std::set<NodeName> named = NodesToUpdate(&before, after);
      for (const NodeName node : {"a", "b", "c", "d", "e", "f"}) {
        if (named.contains(node)) {
          ++told;
          continue;
        }
        ++spared;
        ASSERT_EQ(wanted(before, node), wanted(after, node))
            << "seed " << seed << " step " << step << " node " << node;
      }
      s.Settle();
      if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed;
    }
  }
  EXPECT_GT(told, 1000);
  EXPECT_GT(spared, 1000);
}

// From anywhere, when nodes behave again, a cancelled job ends.
TEST(LifecyclePropertyTest, CancelAlwaysEndsOnceAllIsGone) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Chaos chaos(seed, NativeSpec("j", 3));
    for (int step = 0; step < 30; ++step) {
      chaos.Act();
      chaos.scene().Settle();
    }
    Scene& s = chaos.scene();
    s.job = Cancel(s.job, "user/ann", s.now);
    s.Settle();
    s.AllStopped();
    const std::vector<Hold> holds = s.job.holds;
    for (const Hold& hold : holds) s.Stopped(hold.node);
    s.Settle();
    ASSERT_TRUE(IsFinal(s.job.state)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace lockstep::server
