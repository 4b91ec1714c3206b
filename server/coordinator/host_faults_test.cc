// Hosts that fail jobs, and ways between hosts that are cut.
#include <gmock/gmock.h>

#include <csignal>
#include <deque>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr char kTimedOut[] = "the connection is lost (Connection timed out)";

// Three nodes; a gang of two fills two of them.
class StrikesTest : public CoordinatorTest {
 protected:
  StrikesTest() {
    int number = 0;
    all_ = {&a_, &b_, &c_};
    for (FakeDaemon* daemon : all_) {
      daemon->info.address = fmt::format("10.0.0.{}", ++number);
      daemon->probe_port = 40000 + number;
      daemon->reaches = {{"a", true}, {"b", true}, {"c", true}};
    }
  }
  void ConnectAll() {
    for (FakeDaemon* daemon : all_) Connect(daemon);
  }
  void RunJob(const JobName& name) {
    MustSubmit(Wide(name));
    Run();
    ASSERT_EQ(State(name), JobState::kRunning);
  }
  static void Cut(FakeDaemon* x, FakeDaemon* y, bool reaches = false) {
    x->reaches[y->info.name] = reaches;
    y->reaches[x->info.name] = reaches;
  }
  // The rank on `node` misses the other one, and gives up.
  void LosePeer(FakeDaemon* node, const JobName& job,
                const std::string& words = kTimedOut) {
    FakeDaemon::Gang* const gang = node->Find(job);
    ASSERT_NE(gang, nullptr);
    const int32_t rank = gang->status.ranks[0].rank;
    gang->status.lost_peers = {{rank, 1 - rank, words}};
    ExitStatus exit = ExitCode(75);
    exit.victim = true;
    node->Exit(job, rank, exit);
    Run();
  }
  void StandInAllReduce(const JobName& job, int64_t step) {
    for (FakeDaemon* daemon : all_) {
      FakeDaemon::Gang* const gang = daemon->Find(job);
      if (gang == nullptr || !FakeDaemon::Alive(*gang)) continue;
      for (RankStatus& rank : gang->status.ranks) {
        rank.progress.step = step;
        rank.progress.committed_step = step - 1;
        rank.progress.phase = "allreduce";
      }
      const Status said = coordinator_->sessions()->OnHeartbeat(
          daemon->session(), ++beats_, {0.5, 1 << 30, {}, {}, {}},
          {{job, gang->status.generation, gang->status.ranks}});
      ASSERT_TRUE(said.ok()) << Message(said);
    }
  }
  std::set<NodeName> Nodes(const JobName& job) { return NodesOf(Get(job)); }
  NodeSnapshot Node(const NodeName& name) {
    const auto node = coordinator_->queries()->GetNode(name);
    EXPECT_TRUE(node.ok()) << Message(node.status());
    return node.ok() ? *node : NodeSnapshot();
  }
  std::vector<Reason> EventsOf(const NodeName& name) {
    std::vector<Reason> reasons;
    for (const Event& event : Node(name).member.events) {
      reasons.push_back(event.reason);
    }
    return reasons;
  }
  std::string Waiting(const JobName& name) {
    const auto job = coordinator_->queries()->GetJob(name);
    if (!job.ok() || !job->waiting) return "";
    return fmt::format("{}: {}", Name(job->waiting->reason),
                       job->waiting->message);
  }
  // One of its ranks is killed there whenever it runs.
  void KillOn(FakeDaemon* node, const JobName& job) {
    FakeDaemon::Gang* const gang = node->Find(job);
    if (gang == nullptr || !FakeDaemon::Alive(*gang)) return;
    node->Exit(job, gang->status.ranks[0].rank, KilledBy(SIGKILL));
  }

  uint64_t beats_ = 1000;
  FakeDaemon c_{"c", {2, int64_t{8} << 30, 0, ""}};
};

TEST_F(StrikesTest, AJobWhosePairIsCutGoesOnWithTheIdleThird) {
  ConnectAll();
  RunJob("j");
  ASSERT_THAT(Nodes("j"), ElementsAre("a", "b"));
  Cut(&a_, &b_);
  LosePeer(&a_, "j");
  const MonoTime begun = clock_.Now().mono;
  while (State("j") != JobState::kRunning && clock_.Now().mono - begun < 10s) {
    Pass(100ms, 100ms);
  }
  EXPECT_LE(clock_.Now().mono - begun, 3s);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Nodes("j").size(), 2u);
  EXPECT_THAT(Nodes("j"), Contains("c"));
  EXPECT_EQ(Get("j").failures_without_progress, 0) << "no try was used";
  EXPECT_THAT(Node("a").apart_from, ElementsAre("b"));
  EXPECT_THAT(Node("b").apart_from, ElementsAre("a"));
  EXPECT_THAT(Node("b").member.message,
              HasSubstr("a and b are not placed together until"));
  EXPECT_THAT(EventsOf("a"), Contains(Reason::kNodesApart));
  EXPECT_EQ(Node("a").cool_down_end, std::nullopt) << "one pair is no strike";
}

TEST_F(StrikesTest, ACutInOneDirectionIsOne) {
  ConnectAll();
  RunJob("j");
  a_.reaches["b"] = false;
  LosePeer(&b_, "j");
  Pass(3s);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_THAT(Nodes("j"), Contains("c"));
}

TEST_F(StrikesTest, WithNobodyElseItHoldsAndRunsOnAfterTheMend) {
  all_ = {&a_, &b_};
  ConnectAll();
  RunJob("j");
  Cut(&a_, &b_);
  LosePeer(&a_, "j");
  Pass(20s);
  EXPECT_EQ(State("j"), JobState::kPlacing);
  EXPECT_EQ(Get("j").generation, 1u) << "not tried again and again";
  EXPECT_THAT(
      Waiting("j"),
      HasSubstr("CANNOT_FORM: a did not reach b (Connection timed out)"));
  EXPECT_THAT(Waiting("j"), HasSubstr("not placed together until"));
  Cut(&a_, &b_, true);
  Pass(5s);
  EXPECT_EQ(State("j"), JobState::kRunning) << "as soon as they are seen to";
  EXPECT_EQ(Get("j").failures_without_progress, 0);
  EXPECT_THAT(Node("a").apart_from, IsEmpty());
}

TEST_F(StrikesTest, WhoCannotFormForTenMinutesWaitsInTheQueue) {
  all_ = {&a_, &b_};
  ConnectAll();
  RunJob("j");
  Cut(&a_, &b_);
  LosePeer(&a_, "j");
  for (int minute = 0; minute < 12; ++minute) {
    Pass(1min, 1s);
    if (State("j") == JobState::kRunning) LosePeer(&a_, "j");
    ASSERT_FALSE(IsFinal(State("j"))) << Get("j").cause.message;
  }
  EXPECT_EQ(State("j"), JobState::kQueued);
  EXPECT_EQ(Get("j").failures_without_progress, 0);
  Cut(&a_, &b_, true);
  Pass(10s);
  EXPECT_EQ(State("j"), JobState::kRunning);
}

TEST_F(StrikesTest, WhoReachEachOtherAreTriedOnceMore) {
  ConnectAll();
  RunJob("j");
  LosePeer(&a_, "j");
  Pass(2s);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_THAT(Nodes("j"), ElementsAre("a", "b")) << "a short cut";
  LosePeer(&a_, "j");
  Pass(3s);
  EXPECT_THAT(Nodes("j"), Contains("c")) << "a port that is closed";
}

TEST_F(StrikesTest, OfDaemonsThatCannotBeAskedRanksAreBelievedTheSecondTime) {
  for (FakeDaemon* daemon : all_) daemon->probe_port = 0;
  ConnectAll();
  RunJob("j");
  LosePeer(&a_, "j");
  Pass(2s);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_THAT(Nodes("j"), ElementsAre("a", "b"));
  LosePeer(&a_, "j");
  Pass(3s);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_THAT(Nodes("j"), Contains("c"));
}

TEST_F(StrikesTest, WordsOfRanksAreForThoseWhoSeeTheirJob) {
  all_ = {&a_, &b_};
  ConnectAll();
  RunJob("j");
  for (int i = 0; i < 2; ++i) {
    LosePeer(&a_, "j", "s3cret (Connection timed out)");
    Pass(2s);
  }
  ASSERT_THAT(Node("a").apart_from, ElementsAre("b"));
  EXPECT_THAT(Node("a").member.message,
              HasSubstr("their ranks lost each other"));
  for (const char* name : {"a", "b"}) {
    EXPECT_THAT(Node(name).member.message, Not(HasSubstr("s3cret")));
    for (const Event& event : Node(name).member.events) {
      EXPECT_THAT(event.message, Not(HasSubstr("s3cret")));
    }
  }
  MustSubmit(Wide("other"));
  Pass(1s);
  EXPECT_THAT(Waiting("other"), HasSubstr("their ranks lost each other"));
  EXPECT_THAT(Waiting("other"), Not(HasSubstr("s3cret")));
  std::string own;
  for (const Event& event : Get("j").events) own += event.message + "\n";
  EXPECT_THAT(own, HasSubstr("s3cret")) << "who sees the job sees them";
}

// More nodes than are asked about each other at once.
TEST_F(StrikesTest, ARankOfAWideGangCoolsNoHostsByWhatItSays) {
  std::deque<FakeDaemon> wide;
  all_.clear();
  for (int i = 0; i < 18; ++i) {
    FakeDaemon& daemon = wide.emplace_back(
        fmt::format("w{:02}", i), Resources{2, int64_t{8} << 30, 0, ""});
    daemon.info.address = fmt::format("10.0.1.{}", i + 1);
    daemon.probe_port = 41000 + i;
    for (int k = 0; k < 18; ++k)
      daemon.reaches[fmt::format("w{:02}", k)] = true;
    all_.push_back(&daemon);
    Connect(&daemon);
  }
  JobSpec spec = NativeSpec("j", 18);
  for (RoleSpec& role : spec.roles.Edit()) role.resources.cpus = 2;
  MustSubmit(spec);
  for (int i = 0; i < 2; ++i) {
    Pass(5s);
    ASSERT_EQ(State("j"), JobState::kRunning);
    // Of all others, two of them by two ranks.
    for (FakeDaemon* daemon : {&wide[0], &wide[1]}) {
      GangStatus& status = daemon->Find("j")->status;
      const int32_t own = status.ranks[0].rank;
      status.lost_peers.clear();
      for (int32_t peer = 2; peer < 18; ++peer) {
        status.lost_peers.push_back({own, peer, kTimedOut});
      }
    }
    ExitStatus exit = ExitCode(75);
    exit.victim = true;
    wide[0].Exit("j", wide[0].Find("j")->status.ranks[0].rank, exit);
    Pass(5s);
    if (i == 0) {
      EXPECT_THAT(Node("w00").apart_from, IsEmpty()) << "said once";
    }
    for (const FakeDaemon& daemon : wide) {
      EXPECT_EQ(Node(daemon.info.name).cool_down_end, std::nullopt)
          << daemon.info.name;
    }
  }
}

TEST_F(StrikesTest, WhoDoesNotAnswerHoldsUpNobodyForLong) {
  ConnectAll();
  RunJob("j");
  for (FakeDaemon* daemon : all_) daemon->reaches.clear();
  LosePeer(&a_, "j");
  EXPECT_TRUE(Get("j").failing) << "the answers may come";
  Pass(3s, 100ms);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 2u);
}

TEST_F(StrikesTest, RanksThatStandWhileTheirNodesAreCutAreGivenUpSoon) {
  ConnectAll();
  RunJob("j");
  StepFast("j");
  Cut(&a_, &b_);
  const MonoTime begun = clock_.Now().mono;
  while (Get("j").generation == 1u && clock_.Now().mono - begun < 20s) {
    StandInAllReduce("j", 101);
    Pass(500ms);
  }
  // D, and what the ranks and the placement take.
  EXPECT_LE(clock_.Now().mono - begun, 8s);
  EXPECT_GT(clock_.Now().mono - begun, 5s);
  EXPECT_THAT(Nodes("j"), Contains("c"));
  EXPECT_EQ(Get("j").failures_without_progress, 0);
  // The notice has promised no more time than there was.
  const Job job = Get("j");
  const auto notice = std::find_if(
      job.events.begin(), job.events.end(),
      [](const Event& e) { return e.reason == Reason::kNoProgress; });
  ASSERT_NE(notice, job.events.end());
  EXPECT_THAT(
      notice->message,
      HasSubstr(fmt::format("after {} at the earliest, or after {} where "
                            "their nodes do not reach each other",
                            FormatDuration(30s), FormatDuration(5s))));
  ASSERT_THAT(job.attempts, SizeIs(1));
  EXPECT_EQ(job.attempts[0].end_cause.reason, Reason::kStalled);
  EXPECT_LT(job.attempts[0].end_time - notice->time, 30s - 5s);
}

TEST_F(StrikesTest, RanksThatStandWhileTheirNodesReachEachOtherHaveTime) {
  ConnectAll();
  RunJob("j");
  StepFast("j");
  for (int i = 0; i < 50; ++i) {
    StandInAllReduce("j", 101);
    Pass(500ms);
  }
  EXPECT_EQ(Get("j").generation, 1u);
  EXPECT_FALSE(Get("j").failing);
}

// Of a gang of more nodes than one message asks about, those are asked that a
// rank names.
class WideGangTest : public StrikesTest {
 protected:
  static constexpr int kNodes = 40;
  WideGangTest() {
    all_.clear();
    for (int i = 0; i < kNodes; ++i) {
      FakeDaemon& daemon = daemons_.emplace_back(
          fmt::format("n{:02}", i), Resources{2, int64_t{8} << 30, 0, ""});
      daemon.info.address = fmt::format("10.0.1.{}", i + 1);
      daemon.probe_port = 40000 + i;
      all_.push_back(&daemon);
    }
    for (FakeDaemon& daemon : daemons_) {
      for (int i = 0; i < kNodes; ++i) {
        daemon.reaches[fmt::format("n{:02}", i)] = true;
      }
    }
  }
  // All but the last node.
  void RunWide() {
    ConnectAll();
    JobSpec spec = NativeSpec("j", kNodes - 1);
    for (RoleSpec& role : spec.roles.Edit()) role.resources.cpus = 2;
    MustSubmit(spec);
    Run();
    ASSERT_EQ(State("j"), JobState::kRunning);
    ASSERT_FALSE(Nodes("j").contains("n39"));
  }
  // The rank on the first node misses those on the next `peers` nodes.
  void MissPeers(int peers) {
    FakeDaemon::Gang* const gang = daemons_[0].Find("j");
    ASSERT_NE(gang, nullptr);
    for (int32_t peer = 1; peer <= peers; ++peer) {
      gang->status.lost_peers.push_back({0, peer, kTimedOut});
    }
    ExitStatus exit = ExitCode(75);
    exit.victim = true;
    daemons_[0].Exit("j", 0, exit);
    Run();
  }
  // In deque order they stay where they are.
  std::deque<FakeDaemon> daemons_;
};

TEST_F(WideGangTest, ThePairThatARankNamesIsAskedAndNoOther) {
  RunWide();
  Cut(&daemons_[0], &daemons_[1]);
  MissPeers(2);
  // Later messages ask whether the way has mended.
  ASSERT_FALSE(daemons_[0].probes.empty());
  EXPECT_EQ(daemons_[0].probes[0].targets.size(), 2u);
  ASSERT_FALSE(daemons_[1].probes.empty());
  EXPECT_THAT(daemons_[1].probes[0].targets,
              ElementsAre(ProbeTarget{"n00", "10.0.1.1", 40000}));
  EXPECT_THAT(daemons_[3].probes, IsEmpty());
  Pass(1s, 100ms);
  EXPECT_THAT(Node("n00").apart_from, ElementsAre("n01"));
  EXPECT_THAT(Node("n02").apart_from, IsEmpty()) << "reached when asked";
  Pass(3s);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_THAT(Nodes("j"), Contains("n39"));
}

TEST_F(WideGangTest, ManyAreAskedAboutInSeveralMessages) {
  RunWide();
  const size_t peers = kMaxProbeTargets + 4;
  MissPeers(static_cast<int>(peers));
  ASSERT_EQ(daemons_[0].probes.size(), 2u);
  EXPECT_EQ(daemons_[0].probes[0].targets.size(), kMaxProbeTargets);
  EXPECT_EQ(daemons_[0].probes[1].targets.size(), 4u);
  EXPECT_EQ(daemons_[0].probes[0].id, daemons_[0].probes[1].id);
  Pass(2s, 100ms);
  EXPECT_THAT(Node("n00").apart_from, IsEmpty()) << "all are reached";
  EXPECT_EQ(State("j"), JobState::kRunning);
}

// T28.
TEST_F(StrikesTest, BadHostCoolsDown) {
  ConnectAll();
  // b kills whatever it is given; four jobs come, one after the other.
  std::vector<bool> cooled;
  for (const char* name : {"one", "two", "three", "four"}) {
    MustSubmit(Wide(name));
    for (int i = 0; i < 200 && !IsFinal(State(name)); ++i) {
      Pass(100ms, 100ms);
      KillOn(&b_, name);
      Run();
      if (State(name) == JobState::kRunning && !Nodes(name).contains("b")) {
        for (FakeDaemon* daemon : {&a_, &c_}) {
          daemon->Exit(name, daemon->Find(name)->status.ranks[0].rank,
                       ExitCode(0));
        }
      }
    }
    EXPECT_EQ(State(name), JobState::kSucceeded) << name;
    cooled.push_back(Node("b").cool_down_end.has_value());
  }
  EXPECT_THAT(cooled, ElementsAre(false, true, true, true));
  EXPECT_EQ(Get("three").restarts, 0) << "b was left alone";
  for (const char* good : {"a", "c"}) {
    EXPECT_THAT(EventsOf(good), Not(Contains(Reason::kNodeCooledDown)));
    EXPECT_EQ(Node(good).cool_down_end, std::nullopt);
  }
  EXPECT_THAT(EventsOf("b"), Contains(Reason::kNodeCooledDown));
  EXPECT_THAT(Node("b").member.message, HasSubstr("cools down until"));
  Pass(61s, 1s);
  EXPECT_EQ(Node("b").cool_down_end, std::nullopt) << "it returns";
  RunJob("five");
  EXPECT_THAT(Nodes("five"), ElementsAre("a", "b"));
}

TEST_F(StrikesTest, AnOperatorEndsACoolDown) {
  ConnectAll();
  b_.habits.prepares = false;
  MustSubmit(Wide("j"));
  Pass(13s);
  EXPECT_FALSE(Node("b").cool_down_end) << "late once";
  Pass(12s);
  ASSERT_TRUE(Node("b").cool_down_end);
  EXPECT_EQ(State("j"), JobState::kRunning) << "b was late, others are not";
  EXPECT_EQ(Get("j").failures_without_progress, 0);
  ASSERT_TRUE(UndrainNode("b").ok());
  EXPECT_FALSE(Node("b").cool_down_end);
}

}  // namespace
}  // namespace lockstep::server
