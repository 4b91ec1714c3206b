// Drain, undrain, forget, quarantine, and what nodes are told to have been
// through.
#include <gmock/gmock.h>

#include <csignal>

#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;
using testing::AllOf;
using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class NodeCommandsTest : public CoordinatorTest {
 protected:
  NodeCommandsTest() {
    all_.push_back(&c_);
    for (FakeDaemon* daemon : all_) Connect(daemon);
  }
  std::vector<Event> EventsOf(const NodeName& node) {
    return coordinator_->queries()->GetNode(node)->member.events;
  }

  FakeDaemon c_{"c", {2, int64_t{8} << 30, 0, ""}};
};

// Cores so that a gang of two needs two nodes.
JobSpec Wide(const JobName& name, int32_t tasks = 2) {
  JobSpec spec = NativeSpec(name, tasks);
  for (RoleSpec& role : spec.roles.Edit()) role.resources.cpus = 2;
  return spec;
}

TEST_F(NodeCommandsTest, DrainedNodeTakesNoWorkAndStaysDrained) {
  const auto first = DrainNode("a", {}, "d1");
  ASSERT_TRUE(first.ok()) << Message(first.status());
  EXPECT_EQ(*first, "a DRAINED");
  MustSubmit(Wide("j"));
  Run();
  EXPECT_EQ(NodesOf(Get("j")), (std::set<NodeName>{"b", "c"}));
  a_.Restart(true);
  Connect(&a_);
  EXPECT_EQ(StateOf("a"), NodeState::kDrained) << "its daemon was restarted";
  Restart();
  EXPECT_EQ(*DrainNode("a", {}, "d1"), *first) << "a repeat, after all that";
  for (FakeDaemon* daemon : all_) Connect(daemon);
  Run();
  EXPECT_EQ(StateOf("a"), NodeState::kDrained) << "so was the coordinator";
  EXPECT_THAT(coordinator_->queries()->GetNode("a")->member.message,
              HasSubstr("drained by user/root: new kernel"));
  MustSubmit(Wide("k"));
  EXPECT_THAT(coordinator_->queries()->GetJob("k")->waiting->message,
              HasSubstr("1 of 3 nodes is drained"));
  ASSERT_TRUE(UndrainNode("a").ok());
  EXPECT_EQ(StateOf("a"), NodeState::kReady);
  EXPECT_THAT(EventsOf("a"),
              Contains(Field(&Event::reason, Reason::kNodeUndrain)));
}

TEST_F(NodeCommandsTest, WithoutGraceTheNodeEmptiesByItself) {
  MustSubmit(Wide("j"));
  Run();
  const NodeName node = *NodesOf(Get("j")).begin();
  ASSERT_TRUE(DrainNode(node).ok());
  EXPECT_EQ(StateOf(node), NodeState::kDraining);
  Pass(100s);
  EXPECT_EQ(Get("j").generation, 1u);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_THAT(Get("j").events,
              Contains(Field(&Event::reason, Reason::kNodeDrain)));
  for (FakeDaemon* daemon : all_) {
    daemon->Exit("j", 0, ExitCode(0));
    daemon->Exit("j", 1, ExitCode(0));
  }
  Run();
  EXPECT_EQ(State("j"), JobState::kSucceeded);
  EXPECT_EQ(StateOf(node), NodeState::kDrained);
}

TEST_F(NodeCommandsTest, WithGraceTheJobIsMovedAndPaysNothing) {
  JobSpec spec = Wide("j");
  spec.restart_budget = 0;
  MustSubmit(spec);
  Run();
  StepFast("j");
  ASSERT_EQ(NodesOf(Get("j")), (std::set<NodeName>{"a", "b"}));
  ASSERT_TRUE(DrainNode("a", 30s).ok());
  Run();
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 2u);
  EXPECT_EQ(NodesOf(Get("j")), (std::set<NodeName>{"b", "c"}));
  EXPECT_EQ(Get("j").last_checkpoint->step, 100) << "nothing is lost";
  EXPECT_EQ(Get("j").failures_without_progress, 0);
  EXPECT_EQ(StateOf("a"), NodeState::kDrained);
  EXPECT_THAT(a_.gangs, IsEmpty());
  EXPECT_THAT(Get("j").events,
              Contains(Field(&Event::reason, Reason::kNodeDrained)));
}

TEST_F(NodeCommandsTest, WhoDoesNotStopIsKilledAtTheDeadline) {
  MustSubmit(Wide("j"));
  Run();
  for (FakeDaemon* daemon : all_) daemon->habits.obeys = false;
  ASSERT_TRUE(DrainNode("a", 30s).ok());
  Pass(29s);
  EXPECT_EQ(Get("j").generation, 1u);
  EXPECT_FALSE(Get("j").failing);
  Pass(2s);
  EXPECT_EQ(Get("j").generation, 2u);
  EXPECT_EQ(NodesOf(Get("j")), (std::set<NodeName>{"b", "c"}));
  EXPECT_EQ(Get("j").failures_without_progress, 0);
}

TEST_F(NodeCommandsTest, MovedJobWaitsWhereNothingElseFits) {
  MustSubmit(Wide("j", 3));
  Run();
  ASSERT_EQ(State("j"), JobState::kRunning);
  ASSERT_TRUE(DrainNode("a", 30s).ok());
  ASSERT_TRUE(DrainNode("b", 30s).ok());
  Run();
  EXPECT_EQ(State("j"), JobState::kPlacing);
  EXPECT_THAT(coordinator_->queries()->GetJob("j")->waiting->message,
              HasSubstr("2 of 3 nodes are drained"));
  EXPECT_TRUE(Submit(Wide("k", 3)).ok()) << "it can fit one day";
  ASSERT_TRUE(UndrainNode("a").ok());
  ASSERT_TRUE(UndrainNode("b").ok());
  Run();
  EXPECT_EQ(State("j"), JobState::kRunning);
}

TEST_F(NodeCommandsTest, CommandsOnNodesThatAreNotThere) {
  EXPECT_EQ(ReasonOf(DrainNode("nope").status()), "NO_SUCH_NODE");
  EXPECT_EQ(ReasonOf(UndrainNode("nope").status()), "NO_SUCH_NODE");
  EXPECT_EQ(ReasonOf(ForgetNode("nope").status()), "NO_SUCH_NODE");
}

TEST_F(NodeCommandsTest, StoreThatCannotWriteChangesNothing) {
  store_.FailWith(ResourceExhausted("the disk is full"));
  EXPECT_EQ(DrainNode("a").status().code(), StatusCode::kResourceExhausted);
  b_.Disconnect();
  EXPECT_EQ(ForgetNode("b").status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(StateOf("a"), NodeState::kReady);
  EXPECT_EQ(StateOf("b"), NodeState::kUnknown);
  // A daemon that comes back is taken in all the same, a new one is not.
  b_.Restart(true);
  Connect(&b_);
  FakeDaemon stranger("stranger", {1, 1 << 30, 0, ""});
  EXPECT_EQ(stranger.Connect(coordinator_.get()).code(),
            StatusCode::kResourceExhausted);
  store_.FailWith(OkStatus());
  Pass(2s);
  Restart();
  EXPECT_EQ(
      coordinator_->queries()->GetNode("b")->member.info.incarnation.counter,
      2u)
      << "stored once it could be";
}

// ---- Forget ----

TEST_F(NodeCommandsTest, ConnectedNodeIsNotForgotten) {
  EXPECT_EQ(ReasonOf(ForgetNode("a").status()), "NODE_CONNECTED");
}

TEST_F(NodeCommandsTest, ForgottenNodesJobsGoOnElsewhere) {
  MustSubmit(ProgramSpec("p", {Role(TaskType::kChief, 1, {2, 0, 0, ""}),
                               Role(TaskType::kWorker, 1, {2, 0, 0, ""})}));
  Run();
  ASSERT_EQ(State("p"), JobState::kRunning);
  ASSERT_EQ(NodesOf(Get("p")), (std::set<NodeName>{"a", "b"}));
  b_.Disconnect();
  Pass(10min);
  EXPECT_EQ(State("p"), JobState::kRunning) << "a program is held";
  const auto answer = ForgetNode("b", "f1");
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
  EXPECT_EQ(*answer, "p");
  EXPECT_EQ(coordinator_->queries()->GetNode("b").status().code(),
            StatusCode::kNotFound);
  Pass(5s);
  EXPECT_EQ(State("p"), JobState::kRunning);
  EXPECT_EQ(NodesOf(Get("p")), (std::set<NodeName>{"a", "c"}));
  EXPECT_EQ(Get("p").attempts.back().end_cause.reason, Reason::kNodeForgotten);
  EXPECT_THAT(
      Get("p").events,
      Contains(Field(&Event::message, HasSubstr("node b: given up by user/"))));
  EXPECT_EQ(*ForgetNode("b", "f1"), "p") << "a repeat";
  // It returns with its old ranks: new here, and told to stop them.
  ASSERT_TRUE(FakeDaemon::Alive(*b_.Find("p")));
  Connect(&b_);
  Run();
  EXPECT_THAT(b_.gangs, IsEmpty());
  EXPECT_EQ(StateOf("b"), NodeState::kReady);
  EXPECT_EQ(Get("p").generation, 2u);
  EXPECT_EQ(EventsOf("b").front().reason, Reason::kNodeRegistered);
}

// The coordinator dies right after: what follows is worked out again.
TEST_F(NodeCommandsTest, ForgottenNodeStaysForgotten) {
  MustSubmit(Wide("j"));
  Run();
  b_.Disconnect();
  ASSERT_TRUE(ForgetNode("b").ok());
  Restart();
  Connect(&a_);
  Connect(&c_);
  Pass(5s);
  EXPECT_EQ(coordinator_->queries()->GetNode("b").status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(NodesOf(Get("j")), (std::set<NodeName>{"a", "c"}));
}

TEST_F(NodeCommandsTest, ForgetEndsACancelThatWaitsForTheNode) {
  MustSubmit(Wide("j"));
  Run();
  b_.Disconnect();
  ASSERT_TRUE(Cancel("j").ok());
  Pass(100s);
  if (State("j") == JobState::kFinishing) {
    ASSERT_TRUE(ForgetNode("b").ok());
    Run();
  }
  EXPECT_EQ(State("j"), JobState::kCancelled);
}

// ---- Approval ----

TEST_F(NodeCommandsTest, WhatANodeGrewByGetsNoJobUntilItIsApproved) {
  c_.info.capacity.cpus = 65536;
  c_.Restart(true);
  Connect(&c_);
  JobSpec spec = Wide("j");
  for (RoleSpec& role : spec.roles.Edit()) role.resources.cpus = 3;
  EXPECT_EQ(ReasonOf(Submit(spec).status()), "NEVER_FITS");
  EXPECT_EQ(EventsOf("c").back().reason, Reason::kNodeGrew);
  // Neither another start of its daemon nor one of the coordinator helps.
  Restart();
  c_.Restart(true);
  for (FakeDaemon* daemon : all_) Connect(daemon);
  EXPECT_EQ(ReasonOf(Submit(spec).status()), "NEVER_FITS");
  EXPECT_EQ(coordinator_->queries()->GetNode("c")->member.info.capacity.cpus,
            2);

  const auto answer = ApproveNode("c", "a1");
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
  EXPECT_EQ(*answer, "c READY");
  EXPECT_THAT(EventsOf("c").back().message,
              HasSubstr("approved by user/root: 65536 cpus"));
  MustSubmit(spec);
  Run();
  EXPECT_EQ(NodesOf(Get("j")), (std::set<NodeName>{"c"}));
  // It is stored, and a repeat of the command approves nothing more.
  Restart();
  c_.info.capacity.cpus = 65537;
  c_.Restart(true);
  for (FakeDaemon* daemon : all_) Connect(daemon);
  EXPECT_EQ(*ApproveNode("c", "a1"), *answer);
  EXPECT_EQ(coordinator_->queries()->GetNode("c")->member.info.capacity.cpus,
            65536);
  EXPECT_EQ(coordinator_->queries()->GetNode("c")->member.offered->cpus, 65537);
}

TEST_F(NodeCommandsTest, OnlyWhatIsThereAndStoredIsApproved) {
  EXPECT_EQ(ReasonOf(ApproveNode("z").status()), "NO_SUCH_NODE");
  EXPECT_EQ(*ApproveNode("a"), "a READY") << "nothing waits";
  a_.info.capacity.cpus = 4;
  a_.Restart(true);
  Connect(&a_);
  store_.FailWith(Unavailable("i/o error"));
  EXPECT_FALSE(ApproveNode("a").ok());
  EXPECT_EQ(coordinator_->queries()->GetNode("a")->member.info.capacity.cpus,
            2);
  store_.FailWith(OkStatus());
  Pass(2s);
  EXPECT_TRUE(ApproveNode("a").ok());
  EXPECT_EQ(coordinator_->queries()->GetNode("a")->member.info.capacity.cpus,
            4);
}

// ---- Quarantine ----

TEST_F(NodeCommandsTest, ANodeThatTwoDaemonsClaimIsNotGivenWork) {
  FakeDaemon twin("a", a_.info.capacity);
  twin.info.hostname = "copy-of-a";
  twin.info.address = "10.0.0.9";
  twin.info.boot_id = "other";
  twin.info.incarnation = {2, 5};
  Connect(&twin);
  EXPECT_EQ(StateOf("a"), NodeState::kReady) << "it may be a restart";
  ASSERT_TRUE(a_.Beat().ok());
  EXPECT_EQ(StateOf("a"), NodeState::kQuarantined);
  const std::string message =
      coordinator_->queries()->GetNode("a")->member.message;
  EXPECT_THAT(message, HasSubstr("copy-of-a (10.0.0.9"));
  EXPECT_THAT(message, HasSubstr("a (10.0.0.1"));
  MustSubmit(Wide("j", 3));
  Pass(59s);
  EXPECT_EQ(State("j"), JobState::kQueued);
  Pass(3s);
  EXPECT_EQ(StateOf("a"), NodeState::kReady);
  Run();
  EXPECT_EQ(State("j"), JobState::kRunning);
}

TEST_F(NodeCommandsTest, UndrainEndsAQuarantine) {
  a_.info.incarnation = {2, 77};
  Connect(&a_);
  FakeDaemon twin("a", a_.info.capacity);
  twin.info.incarnation = {1, 5};
  EXPECT_EQ(ReasonOf(twin.Connect(coordinator_.get())), "STALE_INCARNATION");
  EXPECT_EQ(ReasonOf(twin.Connect(coordinator_.get())), "STALE_INCARNATION");
  EXPECT_EQ(StateOf("a"), NodeState::kQuarantined);
  store_.FailWith(Unavailable("i/o error"));
  EXPECT_FALSE(UndrainNode("a").ok());
  EXPECT_EQ(StateOf("a"), NodeState::kQuarantined)
      << "refused: nothing changes";
  store_.FailWith(OkStatus());
  Pass(2s);
  EXPECT_EQ(*UndrainNode("a"), "a READY");
  EXPECT_EQ(StateOf("a"), NodeState::kReady);
  EXPECT_THAT(EventsOf("a"),
              Contains(AllOf(Field(&Event::reason, Reason::kNodeUndrain),
                             Field(&Event::message,
                                   HasSubstr("quarantine ended by user/")))));
}

// ---- Stall ----

TEST_F(NodeCommandsTest, FrozenRankIsRestartedAndNamed) {
  MustSubmit(Wide("j"));
  Run();
  StepFast("j");
  ASSERT_EQ(NodesOf(Get("j")), (std::set<NodeName>{"a", "b"}));
  const auto stand = [&](FakeDaemon* daemon, const std::string& phase) {
    for (RankStatus& rank : daemon->Find("j")->status.ranks) {
      rank.progress.phase = phase;
    }
  };
  stand(&a_, "allreduce");
  stand(&b_, "compute");
  for (int i = 0; i < 9; ++i) {
    clock_.Advance(std::chrono::milliseconds(500));
    ASSERT_TRUE(a_.Progress("j", 1, 100).ok());
    ASSERT_TRUE(b_.Progress("j", 1, 100).ok());
    Run();
  }
  EXPECT_EQ(Get("j").generation, 1u);
  for (int i = 0; i < 4 && Get("j").generation == 1; ++i) {
    clock_.Advance(std::chrono::milliseconds(500));
    ASSERT_TRUE(a_.Progress("j", 1, 100).ok());
    ASSERT_TRUE(b_.Progress("j", 1, 100).ok());
    Run();
  }
  EXPECT_EQ(Get("j").generation, 2u);
  EXPECT_EQ(Get("j").attempts.back().end_cause.reason, Reason::kStalled);
  EXPECT_THAT(Get("j").attempts.back().end_cause.message,
              HasSubstr("rank 1 (worker 0 on b) has stalled in compute"));
}

// ---- A silent node ----

// A stopped process, a paused machine, a disk that takes no write: the streams
// broke meanwhile, and the daemons are on their way back.
TEST_F(NodeCommandsTest, CoordinatorThatStoodStillBlamesNobody) {
  MustSubmit(Wide("j"));
  Run();
  StepFast("j");
  clock_.Advance(10min);
  a_.Disconnect();
  b_.Disconnect();
  Pass(2s);
  EXPECT_EQ(StateOf("a"), NodeState::kUnknown);
  Connect(&a_);
  Connect(&b_);
  Pass(1s);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 1u);
}

// A look at the whole queue, each time that something may have changed.
class LookCounter final : public CoordinatorObserver {
 public:
  void OnJob(const Job*, const Job&, Time) override {}
  void OnCommit(Duration, bool) override {}
  void OnSchedule(Duration, const ScheduleResult&) override { ++looks; }
  int looks = 0;
};

TEST_F(NodeCommandsTest, JobThatHasBackedOffIsNotLookedAtAllTheTime) {
  LookCounter counter;
  options_.observer = &counter;
  Restart();
  Connect(&a_);
  Connect(&b_);
  Connect(&c_);
  MustSubmit(Wide("j", 3));
  Run();
  ASSERT_EQ(State("j"), JobState::kRunning);
  StepFast("j");
  c_.Disconnect();
  Pass(80s);
  ASSERT_EQ(State("j"), JobState::kPlacing);
  ASSERT_EQ(coordinator_->queries()->GetJob("j")->waiting->reason,
            Reason::kNoCapacity);
  const int before = counter.looks;
  Pass(20s);
  EXPECT_EQ(counter.looks, before) << "nothing has changed";
  Connect(&c_);
  Pass(2s);
  EXPECT_EQ(State("j"), JobState::kRunning);
}

TEST_F(NodeCommandsTest, TimeInWhichTheCoordinatorStoodStillIsNotPreparing) {
  a_.habits.prepares = b_.habits.prepares = false;
  MustSubmit(Wide("j"));
  Run();
  ASSERT_EQ(State("j"), JobState::kPreparing);
  clock_.Advance(10min);
  a_.habits.prepares = b_.habits.prepares = true;
  coordinator_->Tick();
  Run();
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 1u);
}

TEST_F(NodeCommandsTest, SlowJobsSilentNodeIsWaitedForLonger) {
  MustSubmit(Wide("j"));
  Run();
  b_.Disconnect();
  Pass(10min);
  EXPECT_EQ(StateOf("b"), NodeState::kUnknown) << "the first step";
  EXPECT_EQ(State("j"), JobState::kRunning);
  Pass(62s);
  EXPECT_EQ(StateOf("b"), NodeState::kLost);
}

// Two jobs on a silent node: the program is held, the other goes on elsewhere.
TEST_F(NodeCommandsTest, ProgramDoesNotHoldANativeJobUp) {
  JobSpec native = NativeSpec("j", 2);
  native.roles.Edit()[0].resources.cpus = 1.5;
  native.roles.Edit()[1].resources.cpus = 1.5;
  MustSubmit(native);
  Run();
  ASSERT_EQ(NodesOf(Get("j")), (std::set<NodeName>{"a", "b"}));
  StepFast("j");
  ASSERT_TRUE(DrainNode("c").ok());
  MustSubmit(ProgramSpec("p", {Role(TaskType::kChief, 1, {0.5, 0, 0, ""})}));
  Run();
  ASSERT_EQ(NodesOf(Get("p")), (std::set<NodeName>{"a"}));
  ASSERT_TRUE(UndrainNode("c").ok());
  a_.Disconnect();
  Pass(63s);
  EXPECT_EQ(Get("j").generation, 1u);
  Pass(10s);
  EXPECT_EQ(Get("j").generation, 2u);
  EXPECT_EQ(NodesOf(Get("j")), (std::set<NodeName>{"b", "c"}));
  EXPECT_EQ(StateOf("a"), NodeState::kUnknown);
  EXPECT_EQ(State("p"), JobState::kRunning);
  Connect(&a_);
  Run();
  EXPECT_EQ(a_.gangs.size(), 1u) << "the program alone";
  EXPECT_EQ(State("p"), JobState::kRunning);
}

TEST_F(NodeCommandsTest, NodeEventsAreStored) {
  b_.Disconnect();
  Pass(1s);
  const std::vector<Event> before = EventsOf("b");
  EXPECT_EQ(before.back().reason, Reason::kNodeSilent);
  Restart();
  EXPECT_EQ(EventsOf("b"), before);
}

}  // namespace
}  // namespace lockstep::server
