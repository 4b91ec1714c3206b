// A drained node of a job that recovers in place is replaced by another one.
#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;

class ReplacedNodeTest : public CoordinatorTest {
 protected:
  ReplacedNodeTest() { all_.push_back(&c_); }

  // Its ranks recover, and have joined what the daemon was told last.
  void Join(FakeDaemon* daemon) {
    FakeDaemon::Gang* const gang = daemon->Find("j");
    ASSERT_NE(gang, nullptr);
    for (RankStatus& rank : gang->status.ranks) {
      rank.recoverable = true;
      rank.recovery = gang->assignment.recovery;
    }
    gang->dirty = true;
    Run();
  }
  void Begin() {
    Connect(&a_);
    Connect(&b_);
    MustSubmit(Wide("j"));
    Run();
    Join(&a_);
    Join(&b_);
    ASSERT_EQ(State("j"), JobState::kRunning);
  }
  StatusCode CheckLog(FakeDaemon& from, NodeSessions::LogPlace* place) {
    return coordinator_->sessions()
        ->CheckLog(from.session(), "j", Get("j").uid, 1, 1, place)
        .code();
  }

  FakeDaemon c_{"c", {2, int64_t{8} << 30, 0, ""}};
};

TEST_F(ReplacedNodeTest, WaitsForANodeThatComesLater) {
  Begin();
  ASSERT_TRUE(DrainNode("b", 10min).ok());
  Run();
  EXPECT_EQ(Get("j").recovery, 0u);
  ASSERT_EQ(Get("j").replacements.size(), 1u);
  EXPECT_EQ(Get("j").replacements[0].to, "");
  Connect(&c_);
  Run();
  const Job job = Get("j");
  EXPECT_EQ(job.state, JobState::kRunning);
  EXPECT_EQ(job.recovery, 1u);
  EXPECT_EQ(job.tasks[1].node, "c");
  EXPECT_EQ(job.tasks[1].former_nodes, std::vector<NodeName>{"b"});
  const FakeDaemon::Gang* const old = b_.Find("j");
  EXPECT_TRUE(old == nullptr || !FakeDaemon::Alive(*old));
  const Assignment& told = c_.Find("j")->assignment;
  EXPECT_EQ(told.goal, Goal::kGo);
  EXPECT_EQ(told.recovery, 1u);
  EXPECT_EQ(told.cluster->tasks[1].node, "c");
  EXPECT_EQ(a_.Find("j")->assignment.cluster->tasks[1].node, "c")
      << "all are told the same";
  CheckBooking();
}

// Also after a coordinator's restart in between.
TEST_F(ReplacedNodeTest, IsStored) {
  Begin();
  Connect(&c_);
  c_.habits.prepares = false;
  ASSERT_TRUE(DrainNode("b", 10min).ok());
  Run();
  ASSERT_EQ(Get("j").replacements[0].to, "c");
  Restart();
  for (FakeDaemon* daemon : all_) Connect(daemon);
  Run();
  ASSERT_EQ(Get("j").replacements[0].to, "c");
  c_.habits.prepares = true;
  Pass(std::chrono::seconds(1));
  EXPECT_EQ(Get("j").tasks[1].node, "c");
  EXPECT_EQ(State("j"), JobState::kRunning);
}

// Its boot was no boot of the job's.
TEST_F(ReplacedNodeTest, MovesToANodeThatWasStartedAnewMeanwhile) {
  Begin();
  StepFast("j");
  Connect(&c_);
  Run();
  c_.Restart(false);
  Connect(&c_);
  Run();
  ASSERT_TRUE(DrainNode("b", 10min).ok());
  Run();
  EXPECT_EQ(Get("j").tasks[1].node, "c");
  StepFast("j");
  EXPECT_EQ(c_.Find("j")->assignment.goal, Goal::kGo);
  EXPECT_EQ(RanksOf(Get("j"))[1]->state, RankState::kJoined);
}

TEST_F(ReplacedNodeTest, LogsAreTakenFromBothNodes) {
  Begin();
  Connect(&c_);
  ASSERT_TRUE(DrainNode("b", 10min).ok());
  Run();
  ASSERT_EQ(Get("j").tasks[1].node, "c");
  NodeSessions::LogPlace place;
  EXPECT_EQ(CheckLog(b_, &place), StatusCode::kOk);
  EXPECT_EQ(place.moves, 0);
  EXPECT_EQ(CheckLog(c_, &place), StatusCode::kOk);
  EXPECT_EQ(place.moves, 1);
  EXPECT_EQ(CheckLog(a_, &place), StatusCode::kPermissionDenied);
}

// What the old process says to its peers comes too late, and is no error.
TEST_F(ReplacedNodeTest, TheOldNodeMeetsTheOthersNoMore) {
  Begin();
  Connect(&c_);
  ASSERT_TRUE(DrainNode("b", 10min).ok());
  Run();
  ASSERT_EQ(Get("j").recovery, 1u);
  EXPECT_TRUE(coordinator_->sessions()
                  ->OnRendezvousPut(b_.session(), "j", 1, "recovery/1/x", "b")
                  .ok());
  EXPECT_TRUE(coordinator_->sessions()
                  ->OnRendezvousPut(c_.session(), "j", 1, "recovery/1/x", "c")
                  .ok());
  EXPECT_TRUE(coordinator_->sessions()
                  ->OnRendezvousGet(a_.session(), "j", 1, "recovery/1/x")
                  .ok());
  Run();
  ASSERT_FALSE(a_.rendezvous.empty());
  EXPECT_NE(a_.rendezvous.back().find("c"), std::string::npos);
}

// A program of two ranks on a and b that recovers, and room on c.
class ReplacedProgramTest : public ReplacedNodeTest {
 protected:
  ReplacedProgramTest() {
    int number = 0;
    for (FakeDaemon* daemon : all_) {
      daemon->info.address = fmt::format("10.0.0.{}", ++number);
      daemon->probe_port = 40000 + number;
    }
  }
  void Begin(bool recovers) {
    for (FakeDaemon* daemon : {&a_, &b_}) Connect(daemon);
    JobSpec spec =
        ProgramSpec("j", {Role(TaskType::kChief, 1, {2, 0, 0, ""}),
                          Role(TaskType::kWorker, 1, {2, 0, 0, ""})});
    spec.node_lost_timeout = limit_;
    MustSubmit(spec);
    Run();
    if (recovers) {
      Join(&a_);
      Join(&b_);
    }
    ASSERT_EQ(State("j"), JobState::kRunning);
    Connect(&c_);
    Run();
  }
  std::optional<Duration> limit_;

  // Its host dies with its links.
  void Kill(FakeDaemon* daemon) {
    for (FakeDaemon* other : all_) {
      other->reaches[daemon->info.name] = false;
      other->quiet[daemon->info.name] = std::chrono::minutes(10);
    }
    daemon->Disconnect();
  }
  // Until its rank runs on c; 0: not within a minute.
  Duration MovedAfter(size_t task) {
    const MonoTime begun = clock_.Now().mono;
    while (clock_.Now().mono - begun < std::chrono::minutes(1)) {
      Pass(std::chrono::milliseconds(100), std::chrono::milliseconds(100));
      if (Get("j").tasks[task].node == "c") return clock_.Now().mono - begun;
    }
    return Duration{};
  }
};

TEST_F(ReplacedProgramTest, MovesFromADeadHostWithinSeconds) {
  Begin(/*recovers=*/true);
  Kill(&b_);
  const Duration after = MovedAfter(1);
  EXPECT_GT(after, std::chrono::seconds(3)) << "its lease comes first";
  EXPECT_LE(after, std::chrono::seconds(5));
  EXPECT_EQ(Get("j").generation, 1u);
  EXPECT_EQ(Get("j").recovery, 1u);
}

TEST_F(ReplacedProgramTest, StepsProveThatASilentHostLives) {
  Begin(/*recovers=*/true);
  Kill(&b_);
  for (int64_t step = 1; step <= 100; ++step) {
    ASSERT_TRUE(a_.Progress("j", 1, step).ok());
    Pass(std::chrono::milliseconds(100), std::chrono::milliseconds(100));
  }
  EXPECT_EQ(Get("j").tasks[1].node, "b");
  EXPECT_NE(MovedAfter(1), Duration{}) << "there are no more";
}

// It may be about to write a checkpoint.
TEST_F(ReplacedProgramTest, Rank0IsWaitedFor) {
  Begin(/*recovers=*/true);
  Kill(&a_);
  EXPECT_EQ(MovedAfter(0), Duration{});
  Pass(std::chrono::minutes(5), std::chrono::seconds(1));
  EXPECT_EQ(Get("j").tasks[0].node, "c");
}

TEST_F(ReplacedProgramTest, OneWithALimitOfItsOwnKeepsToIt) {
  limit_ = std::chrono::seconds(30);
  Begin(/*recovers=*/true);
  Kill(&b_);
  const Duration after = MovedAfter(1);
  EXPECT_GE(after, std::chrono::seconds(29));
}

TEST_F(ReplacedProgramTest, ItsHistorySaysWhatIsTrue) {
  Begin(/*recovers=*/true);
  Kill(&b_);
  ASSERT_NE(MovedAfter(1), Duration{});
  Join(&a_);
  Join(&c_);
  Pass(std::chrono::seconds(20));
  for (const Event& event : Get("j").events) {
    EXPECT_NE(event.reason, Reason::kNodeUnknown) << event.message;
  }
}

TEST_F(ReplacedProgramTest, OneThatDoesNotRecoverIsWaitedFor) {
  Begin(/*recovers=*/false);
  Kill(&b_);
  EXPECT_EQ(MovedAfter(1), Duration{});
  EXPECT_EQ(Get("j").generation, 1u);
}

}  // namespace
}  // namespace lockstep::server
