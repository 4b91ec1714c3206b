#include "server/core/membership.h"

#include "server/core/membership_fixture.h"
#include "server/core/testing.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ns;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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

}  // namespace
}  // namespace lockstep::server
