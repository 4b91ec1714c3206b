#include "server/core/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/core/testing.h"
#include "tests/support/fake_clock.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ns;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Incarnation kFirst{1, 11};
constexpr Incarnation kSecond{2, 22};

class MembershipTest : public testing::Test {
 protected:
  static NodeInfo Node(Incarnation incarnation) {
    NodeInfo info;
    info.name = "a";
    info.incarnation = incarnation;
    return info;
  }
  Status Register(Incarnation incarnation) {
    return members_.Register(Node(incarnation), clock_.Now());
  }
  Status Beat(Incarnation incarnation) {
    return members_.Beat("a", incarnation, readings_, clock_.Now());
  }
  std::vector<NodeName> Expire(std::optional<Duration> patience = 65s) {
    return members_.Expire(clock_.Now(),
                           [=](const NodeName&) { return patience; });
  }
  NodeState State() { return members_.Find("a")->state; }

  NodeReadings readings_ = [] {
    NodeReadings readings;
    readings.cpu_utilization = 0.5;
    readings.memory_available_bytes = 100;
    return readings;
  }();
  FakeClock clock_;
  Membership members_{MembershipOptions{3s, 65s}};
};

TEST_F(MembershipTest, RegisteredNodeIsReady) {
  ASSERT_TRUE(Register(kFirst).ok());
  EXPECT_EQ(State(), NodeState::kReady);
  EXPECT_EQ(members_.Find("a")->last_beat_wall, clock_.Now().wall);
}

TEST_F(MembershipTest, LeaseEndsJustAfterItsTime) {
  ASSERT_TRUE(Register(kFirst).ok());
  clock_.Advance(3s);
  EXPECT_THAT(Expire(), IsEmpty());
  clock_.Advance(1ns);
  EXPECT_THAT(Expire(), ElementsAre("a"));
  EXPECT_EQ(State(), NodeState::kUnknown);
  EXPECT_THAT(members_.Find("a")->message, HasSubstr("3.0 s"));
  EXPECT_THAT(Expire(), IsEmpty()) << "told once";
}

TEST_F(MembershipTest, BeatRenews) {
  ASSERT_TRUE(Register(kFirst).ok());
  clock_.Advance(3s);
  ASSERT_TRUE(Beat(kFirst).ok());
  clock_.Advance(3s);
  EXPECT_THAT(Expire(), IsEmpty());
  EXPECT_EQ(members_.Find("a")->readings.cpu_utilization, 0.5);
  EXPECT_EQ(members_.Find("a")->readings.memory_available_bytes, 100);
}

TEST_F(MembershipTest, BeatBringsANodeBack) {
  ASSERT_TRUE(Register(kFirst).ok());
  clock_.Advance(100s);
  Expire();
  ASSERT_TRUE(Beat(kFirst).ok());
  EXPECT_EQ(State(), NodeState::kReady);
  EXPECT_EQ(members_.Find("a")->message, "");
}

TEST_F(MembershipTest, SilentNodeIsLostAfterAWhile) {
  ASSERT_TRUE(Register(kFirst).ok());
  clock_.Advance(65s);
  Expire();
  EXPECT_THAT(Expire(), IsEmpty());
  clock_.Advance(1ns);
  EXPECT_THAT(Expire(), ElementsAre("a"));
  EXPECT_EQ(State(), NodeState::kLost);
  EXPECT_THAT(Expire(), IsEmpty());
}

TEST_F(MembershipTest, NodeWithProgramsIsNeverLostBySilence) {
  ASSERT_TRUE(Register(kFirst).ok());
  clock_.Advance(100000s);
  Expire(std::nullopt);
  EXPECT_THAT(Expire(std::nullopt), IsEmpty());
  EXPECT_EQ(State(), NodeState::kUnknown);
}

TEST_F(MembershipTest, StepsProveThatASilentNodeLives) {
  ASSERT_TRUE(Register(kFirst).ok());
  clock_.Advance(60s);
  Expire();
  members_.RecordLiveness("a", clock_.Now().mono);
  clock_.Advance(65s);
  EXPECT_THAT(Expire(), IsEmpty());
  EXPECT_EQ(State(), NodeState::kUnknown) << "proof is no beat";
  clock_.Advance(1ns);
  EXPECT_THAT(Expire(), ElementsAre("a"));
}

TEST_F(MembershipTest, LaterProcessTakesOverAndTheFirstIsRefused) {
  ASSERT_TRUE(Register(kFirst).ok());
  ASSERT_TRUE(Register(kSecond).ok());
  EXPECT_EQ(Beat(kFirst).code(), StatusCode::kAborted);
  EXPECT_EQ(ReasonOf(Beat(kFirst)), "STALE_INCARNATION");
  EXPECT_EQ(ReasonOf(Register(kFirst)), "STALE_INCARNATION");
  EXPECT_TRUE(Beat(kSecond).ok());
}

// A directory that was emptied counts from the start again.
TEST_F(MembershipTest, RefusalOfAWipedWorkerSaysHowItGetsIn) {
  ASSERT_TRUE(Register(kSecond).ok());
  members_.Disconnect("a", kSecond, clock_.Now());
  EXPECT_THAT(Message(Register(kFirst)),
              HasSubstr("`lockstep nodes forget a` lets it register as new"));
  members_.Forget("a");
  EXPECT_TRUE(Register(kFirst).ok());
}

TEST_F(MembershipTest, SameProcessMayRegisterAgain) {
  ASSERT_TRUE(Register(kFirst).ok());
  EXPECT_TRUE(Register(kFirst).ok());
  members_.Disconnect("a", kFirst, clock_.Now());
  EXPECT_EQ(State(), NodeState::kUnknown);
  EXPECT_TRUE(Register(kFirst).ok());
  EXPECT_EQ(State(), NodeState::kReady);
}

TEST_F(MembershipTest, CloneIsRefusedWhileTheFirstLives) {
  const Incarnation clone{1, 12};
  ASSERT_TRUE(Register(kFirst).ok());
  EXPECT_EQ(ReasonOf(Register(clone)), "CLONED_NODE");
  EXPECT_TRUE(Beat(kFirst).ok());
  clock_.Advance(4s);
  Expire();
  EXPECT_TRUE(Register(clone).ok()) << "the first is silent";
  EXPECT_EQ(Beat(kFirst).code(), StatusCode::kAborted);
}

TEST_F(MembershipTest, CheckRegisterChangesNothing) {
  EXPECT_TRUE(members_.CheckRegister(Node(kFirst)).ok());
  EXPECT_EQ(members_.Find("a"), nullptr);
}

TEST_F(MembershipTest, StrangersMustRegister) {
  EXPECT_EQ(Beat(kFirst).code(), StatusCode::kNotFound);
}

TEST_F(MembershipTest, EndOfAnOldStreamIsNoMatter) {
  ASSERT_TRUE(Register(kFirst).ok());
  ASSERT_TRUE(Register(kSecond).ok());
  members_.Disconnect("a", kFirst, clock_.Now());
  EXPECT_EQ(State(), NodeState::kReady);
  members_.Disconnect("b", kFirst, clock_.Now());
}

TEST_F(MembershipTest, RestoredNodeIsUnknownAndSilentSinceTheStart) {
  NodeRecord record;
  record.info = Node(kFirst);
  members_.Restore(record, clock_.Now());
  EXPECT_EQ(State(), NodeState::kUnknown);
  clock_.Advance(65s);
  EXPECT_THAT(Expire(), IsEmpty());
  clock_.Advance(1ns);
  EXPECT_THAT(Expire(), ElementsAre("a"));
  EXPECT_TRUE(Register(kFirst).ok());
  EXPECT_EQ(State(), NodeState::kReady);
}

TEST_F(MembershipTest, LostNodeComesBackByRegistering) {
  ASSERT_TRUE(Register(kFirst).ok());
  clock_.Advance(100s);
  Expire();
  Expire();
  ASSERT_EQ(State(), NodeState::kLost);
  EXPECT_TRUE(Register(kSecond).ok());
  EXPECT_EQ(State(), NodeState::kReady);
}

TEST_F(MembershipTest, WallClockDecidesNothing) {
  ASSERT_TRUE(Register(kFirst).ok());
  clock_.JumpWall(std::chrono::hours(1));
  EXPECT_THAT(Expire(), IsEmpty());
  clock_.JumpWall(-std::chrono::hours(2));
  EXPECT_THAT(Expire(), IsEmpty());
}

// ---- Drain, events, quarantine ----

TEST_F(MembershipTest, SlowJobsNodeIsWaitedForLonger) {
  ASSERT_TRUE(Register(kFirst).ok());
  clock_.Advance(300s);
  Expire(460s);
  EXPECT_EQ(State(), NodeState::kUnknown);
  EXPECT_THAT(Expire(460s), IsEmpty());
  clock_.Advance(161s);
  EXPECT_THAT(Expire(460s), ElementsAre("a"));
}

TEST_F(MembershipTest, DrainIsShownByWhatIsThere) {
  ASSERT_TRUE(Register(kFirst).ok());
  const Member* member = members_.Find("a");
  EXPECT_TRUE(member->TakesWork());
  Drain drain;
  drain.requester = "user/ann";
  drain.reason = "new kernel";
  drain.time = clock_.Now().wall;
  members_.Apply(DrainNode(member->Record(), drain));
  EXPECT_FALSE(member->TakesWork());
  EXPECT_EQ(member->Shown(true), NodeState::kDraining);
  EXPECT_EQ(member->Shown(false), NodeState::kDrained);
  EXPECT_EQ(member->events.back().reason, Reason::kNodeDrain);
  EXPECT_THAT(member->events.back().message,
              HasSubstr("drained by user/ann: new kernel"));
  // A daemon that is started again changes nothing of it.
  ASSERT_TRUE(Register(kSecond).ok());
  EXPECT_FALSE(member->TakesWork());
  clock_.Advance(4s);
  Expire();
  EXPECT_EQ(member->Shown(true), NodeState::kUnknown) << "silence comes first";
  EXPECT_EQ(member->Shown(false), NodeState::kDrained) << "it may be off";
  ASSERT_TRUE(Beat(kSecond).ok());
  members_.Apply(
      UndrainNode(member->Record(), false, "user/bob", clock_.Now().wall));
  EXPECT_TRUE(member->TakesWork());
  EXPECT_EQ(member->events.back().reason, Reason::kNodeUndrain);
  EXPECT_EQ(UndrainNode(member->Record(), false, "user/bob", clock_.Now().wall),
            member->Record());
}

TEST_F(MembershipTest, EventsSayWhatHappenedAndAreBounded) {
  ASSERT_TRUE(Register(kFirst).ok());
  const auto& events = members_.Find("a")->events;
  EXPECT_EQ(events.back().reason, Reason::kNodeRegistered);
  clock_.Advance(4s);
  Expire();
  EXPECT_EQ(events.back().reason, Reason::kNodeSilent);
  ASSERT_TRUE(Beat(kFirst).ok());
  EXPECT_EQ(events.back().reason, Reason::kNodeBack);
  EXPECT_THAT(events.back().message, HasSubstr("after 4.0 s"));
  ASSERT_TRUE(Register(kSecond).ok());
  EXPECT_EQ(events.back().reason, Reason::kNodeRestarted);
  NodeInfo rebooted = Node(kSecond);
  rebooted.boot_id = "other";
  ASSERT_TRUE(members_.Register(rebooted, clock_.Now()).ok());
  rebooted.boot_id = "third";
  ASSERT_TRUE(members_.Register(rebooted, clock_.Now()).ok());
  EXPECT_EQ(events.back().reason, Reason::kNodeRebooted);
  for (int i = 0; i < 200; ++i) {
    clock_.Advance(4s);
    Expire();
    ASSERT_TRUE(Beat(kSecond).ok());
  }
  EXPECT_EQ(events.size(), kMaxNodeEvents);
}

TEST_F(MembershipTest, SecondClaimWithinAMinuteIsAQuarantine) {
  NodeInfo one = Node(kFirst);
  one.hostname = "host-1";
  one.address = "10.0.0.1";
  NodeInfo two = Node(kSecond);
  two.hostname = "host-2";
  two.address = "10.0.0.2";
  ASSERT_TRUE(members_.Register(one, clock_.Now()).ok());
  EXPECT_FALSE(members_.Contest(two, clock_.Now(), false))
      << "once may be a restart";
  ASSERT_TRUE(members_.Register(two, clock_.Now()).ok());
  clock_.Advance(59s);
  ASSERT_TRUE(Beat(kSecond).ok());
  EXPECT_TRUE(members_.Contest(one, clock_.Now(), false));
  const Member* member = members_.Find("a");
  EXPECT_EQ(member->Shown(true), NodeState::kQuarantined);
  EXPECT_FALSE(member->TakesWork());
  for (const char* part : {"host-1", "10.0.0.1", "host-2", "10.0.0.2"}) {
    EXPECT_THAT(member->message, HasSubstr(part));
  }
  EXPECT_EQ(member->events.back().reason, Reason::kNodeQuarantined);
  // It goes on until one has been alone for a minute.
  for (int i = 0; i < 60; ++i) {
    clock_.Advance(1s);
    ASSERT_TRUE(Beat(kSecond).ok());
    EXPECT_THAT(Expire(), IsEmpty());
  }
  EXPECT_NE(member->message, "");
  clock_.Advance(1ns);
  EXPECT_THAT(Expire(), ElementsAre("a"));
  EXPECT_TRUE(member->TakesWork());
  EXPECT_EQ(member->message, "");
}

TEST_F(MembershipTest, ClaimsFarApartAreNoQuarantine) {
  ASSERT_TRUE(Register(kFirst).ok());
  EXPECT_FALSE(members_.Contest(Node(kSecond), clock_.Now(), false));
  clock_.Advance(60s + 1ns);
  EXPECT_FALSE(members_.Contest(Node(kSecond), clock_.Now(), false));
  EXPECT_TRUE(members_.Contest(Node(kSecond), clock_.Now(), false));
  members_.EndQuarantine("a");
  EXPECT_EQ(members_.Find("a")->quarantine, "");
}

TEST_F(MembershipTest, BeatsTellHowFarTheClockIsBehind) {
  ASSERT_TRUE(Register(kFirst).ok());
  ASSERT_TRUE(Beat(kFirst).ok());
  EXPECT_EQ(members_.Find("a")->clock.offset(), Duration{}) << "an old daemon";
  readings_.send_time = clock_.Now().wall - 3s;
  ASSERT_TRUE(Beat(kFirst).ok());
  EXPECT_EQ(members_.Find("a")->clock.offset(), 3s);
}

class GpuTest : public MembershipTest {
 protected:
  // With those of three GPUs that are in `indices`.
  NodeInfo With(std::vector<int32_t> indices, uint64_t start) const {
    NodeInfo info = Node({start, start});
    info.boot_id = boot_id_;
    for (const int32_t i : indices) {
      info.gpus.push_back({i, "GPU-" + std::to_string(i), "NVIDIA H100", 80});
    }
    return info;
  }
  void Start(std::vector<int32_t> indices, uint64_t start) {
    ASSERT_TRUE(
        members_.Register(With(std::move(indices), start), clock_.Now()).ok());
  }
  std::vector<std::string> Said(Reason reason) {
    std::vector<std::string> said;
    for (const Event& event : members_.Find("a")->events) {
      if (event.reason == reason) said.push_back(event.message);
    }
    return said;
  }
  size_t Lost() { return members_.Find("a")->LostGpus(); }

  std::string boot_id_ = "boot";
};

TEST_F(MembershipTest, DrainedNodeThatDiedWithTasksIsNotShownDrained) {
  ASSERT_TRUE(Register(kFirst).ok());
  const Member* member = members_.Find("a");
  Drain drain;
  drain.requester = "user/ann";
  members_.Apply(DrainNode(member->Record(), drain));
  members_.NoteTasks("a", true);
  EXPECT_EQ(member->Shown(false), NodeState::kDrained) << "it is there";
  clock_.Advance(4s);
  Expire();
  members_.NoteTasks("a", true);
  EXPECT_EQ(member->Shown(true), NodeState::kUnknown);
  EXPECT_EQ(member->Shown(false), NodeState::kUnknown)
      << "its tasks were given up";
  ASSERT_TRUE(Beat(kFirst).ok());
  EXPECT_EQ(member->Shown(false), NodeState::kDrained);
}

TEST_F(GpuTest, OneThatIsGoneIsMissingUntilItIsBack) {
  Start({0, 1, 2}, 1);
  EXPECT_EQ(Lost(), 0u);
  Start({0, 2}, 2);
  EXPECT_THAT(Said(Reason::kNodeGpuLost),
              ElementsAre("GPU 1 (NVIDIA H100, GPU-1) is no longer offered: "
                          "the node has 2 of its 3 GPUs"));
  ASSERT_EQ(members_.Find("a")->missing_gpus.size(), 1u);
  EXPECT_EQ(members_.Find("a")->missing_gpus[0].uuid, "GPU-1");
  EXPECT_EQ(Lost(), 1u);
  Start({0, 2}, 3);
  EXPECT_EQ(Lost(), 1u) << "the next start forgets nothing";
  EXPECT_EQ(Said(Reason::kNodeGpuLost).size(), 1u) << "nor repeats it";
  Start({0, 1, 2}, 4);
  EXPECT_EQ(Lost(), 0u);
  EXPECT_THAT(Said(Reason::kNodeGpuBack),
              ElementsAre("GPU 1 (NVIDIA H100, GPU-1) is offered again"));
}

// After one has gone the driver numbers the others anew.
TEST_F(GpuTest, ItIsKnownByItsUuid) {
  Start({0, 1, 2}, 1);
  NodeInfo info = With({0, 2}, 2);
  info.gpus[1].index = 1;
  ASSERT_TRUE(members_.Register(info, clock_.Now()).ok());
  ASSERT_EQ(members_.Find("a")->missing_gpus.size(), 1u);
  EXPECT_EQ(members_.Find("a")->missing_gpus[0].uuid, "GPU-1");
}

TEST_F(GpuTest, OneThatDoesNotAnswerIsLost) {
  Start({0, 1}, 1);
  GpuUsage alive;
  alive.utilization = 0.5;
  GpuUsage silent;
  silent.index = 1;
  readings_.gpus = {alive, silent};
  ASSERT_TRUE(Beat({1, 1}).ok());
  const uint64_t news = members_.Find("a")->news;
  ASSERT_TRUE(Beat({1, 1}).ok());
  EXPECT_EQ(members_.Find("a")->news, news) << "said once";
  EXPECT_THAT(Said(Reason::kNodeGpuLost),
              ElementsAre(HasSubstr("GPU 1 (NVIDIA H100, GPU-1) does not")));
  EXPECT_EQ(Lost(), 1u);
  readings_.gpus[1].utilization = 0;
  ASSERT_TRUE(Beat({1, 1}).ok());
  EXPECT_EQ(Said(Reason::kNodeGpuBack).size(), 1u);
  EXPECT_EQ(Lost(), 0u);
}

TEST_F(GpuTest, ErrorsAreEventsAndBounded) {
  Start({0, 1}, 1);
  readings_.gpu_errors = {{1, 13}};
  ASSERT_TRUE(Beat({1, 1}).ok());
  ASSERT_TRUE(Beat({1, 1}).ok());
  EXPECT_THAT(Said(Reason::kNodeGpuError),
              ElementsAre("GPU 1 (NVIDIA H100, GPU-1): the driver reported Xid "
                          "13"));
  EXPECT_EQ(Lost(), 0u) << "13 is the program's own fault";
  clock_.Advance(600s);
  ASSERT_TRUE(Beat({1, 1}).ok());
  EXPECT_EQ(Said(Reason::kNodeGpuError).size(), 2u) << "it goes on";
  readings_.gpu_errors.clear();
  for (int32_t i = 0; i < 256; ++i) readings_.gpu_errors.push_back({0, i});
  ASSERT_TRUE(Beat({1, 1}).ok());
  // 8 more, and that GPU 0 gets no new work.
  EXPECT_EQ(Said(Reason::kNodeGpuError).size(), 11u);
  EXPECT_EQ(Lost(), 1u) << "48 is among those that are not told";
}

TEST_F(GpuTest, FatalErrorLastsUntilABootOrUndrain) {
  Start({0, 1}, 1);
  readings_.gpu_errors = {{1, 79}};
  ASSERT_TRUE(Beat({1, 1}).ok());
  const auto bad = [&] { return members_.Find("a")->BadGpus(); };
  EXPECT_THAT(bad(), ElementsAre(1));
  EXPECT_THAT(members_.Find("a")->info.gpus[1].fault, HasSubstr("Xid 79 at "));
  EXPECT_THAT(Said(Reason::kNodeGpuError),
              ElementsAre(HasSubstr("Xid 79 is fatal"),
                          HasSubstr("the driver reported Xid 79")));
  EXPECT_TRUE(members_.Find("a")->TakesWork()) << "its other GPUs are well";
  readings_.gpu_errors.clear();
  ASSERT_TRUE(Beat({1, 1}).ok());
  EXPECT_THAT(bad(), ElementsAre(1)) << "silence since is no cure";
  // Neither is another start of the daemon.
  Start({0, 1}, 2);
  EXPECT_THAT(bad(), ElementsAre(1));
  const NodeRecord cleared = UndrainNode(members_.Find("a")->Record(), false,
                                         "user/ann", clock_.Now().wall);
  EXPECT_THAT(cleared.events.back().message,
              HasSubstr("GPU 1 (NVIDIA H100, GPU-1) cleared by user/ann"));
  members_.Apply(cleared);
  EXPECT_THAT(bad(), testing::IsEmpty());
  readings_.gpu_errors = {{0, 119}};
  ASSERT_TRUE(Beat({2, 2}).ok());
  EXPECT_THAT(bad(), ElementsAre(0));
  // Nor that it was away for a while.
  Start({1}, 2);
  Start({0, 1}, 2);
  EXPECT_THAT(bad(), ElementsAre(0));
  boot_id_ = "another boot";
  Start({0, 1}, 3);
  EXPECT_THAT(bad(), testing::IsEmpty());
}

}  // namespace
}  // namespace lockstep::server
