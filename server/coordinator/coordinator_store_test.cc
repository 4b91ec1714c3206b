#include <gmock/gmock.h>

#include <algorithm>

#include "common/model/reduction_plan.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"
#include "server/core/lineage.h"
#include "server/store/sqlite_store.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;
using testing::HasSubstr;

// ---- The store ----

TEST_F(CoordinatorTest, FailedCommitChangesNothingAndIsTriedAgain) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  store_.FailWith(ResourceExhausted("the disk is full"));
  EXPECT_EQ(Submit(Wide("k")).status().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(coordinator_->queries()->GetJob("k").ok());
  EXPECT_FALSE(coordinator_->queries()->store_healthy());
  a_.Exit("j", 0, ExitCode(0));
  b_.Exit("j", 1, ExitCode(0));
  const size_t told = b_.assignments.size();
  Run();
  EXPECT_EQ(State("j"), JobState::kRunning) << "not stored, so not so";
  EXPECT_EQ(b_.assignments.size(), told);
  store_.FailWith(OkStatus());
  Run();
  EXPECT_TRUE(coordinator_->queries()->store_healthy());
  EXPECT_EQ(State("j"), JobState::kSucceeded);
  EXPECT_TRUE(Submit(Wide("k")).ok()) << "the same request again";
}

// Daemons refuse more than 100,000 entries.
TEST_F(CoordinatorTest, ALongLineageOfAnOlderCoordinatorIsMadeShort) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  Job old = Get("j");
  old.lineage.clear();
  for (Generation g = 1; g <= 200'000; ++g) old.lineage.push_back({g, 70});
  old.generation = 200'000;
  old.lineage.front().start_step = 0;
  StoreBatch batch;
  batch.version = coordinator_->queries()->version() + 1;
  batch.jobs = {std::make_shared<const Job>(old)};
  ASSERT_TRUE(store_.Commit(batch).ok());
  a_.Restart(false);
  b_.Restart(false);
  Restart();
  Connect(&a_);
  Connect(&b_);
  Pass(5s);
  ASSERT_EQ(State("j"), JobState::kRunning);
  const Assignment& told = a_.assignments.back();
  EXPECT_GT(told.generation, 200'000u);
  EXPECT_EQ(told.spec->lineage.size(), kMaxLineage);
  EXPECT_EQ(told.spec->lineage.front(), (LineageEntry{1, 0}));
  EXPECT_EQ(told.spec->lineage.back().generation, told.generation);
}

TEST_F(CoordinatorTest, NodeThatCouldNotBeStoredIsNoMember) {
  store_.FailWith(Unavailable("i/o error"));
  EXPECT_EQ(a_.Connect(coordinator_.get()).code(), StatusCode::kUnavailable);
  EXPECT_FALSE(coordinator_->queries()->GetNode("a").ok());
  store_.FailWith(OkStatus());
  Connect(&a_);
  Restart();
  EXPECT_TRUE(coordinator_->queries()->GetNode("a").ok())
      << "it was stored then";
}

// Without any command: readiness comes back by itself.
TEST_F(CoordinatorTest, StoreThatFailedIsTriedEverySecond) {
  store_.FailWith(Unavailable("i/o error"));
  EXPECT_FALSE(Submit(Wide("j")).ok());
  Pass(5s);
  EXPECT_FALSE(coordinator_->queries()->store_healthy());
  store_.FailWith(OkStatus());
  Pass(2s);
  EXPECT_TRUE(coordinator_->queries()->store_healthy());
  const int64_t commits = store_.commits();
  Pass(10s);
  EXPECT_EQ(store_.commits(), commits) << "and then no more";
}

TEST_F(CoordinatorTest, TroubleOfARunningJobIsSaid) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  EXPECT_FALSE(coordinator_->queries()->GetJob("j")->waiting);
  for (int64_t step = 1; step <= 3; ++step) {
    ASSERT_TRUE(a_.Progress("j", 1, step).ok());
    clock_.Advance(1s);
  }
  Pass(40s);
  auto trouble = coordinator_->queries()->GetJob("j")->waiting;
  ASSERT_TRUE(trouble);
  EXPECT_THAT(trouble->message, HasSubstr("no step for"));
  b_.Disconnect();
  trouble = coordinator_->queries()->GetJob("j")->waiting;
  ASSERT_TRUE(trouble);
  EXPECT_THAT(trouble->message, HasSubstr("node b has been silent for "));
}

// What was decided while the store worked is told although it does not now.
TEST_F(CoordinatorTest, BrokenStoreKeepsRunningJobsRunning) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  store_.FailWith(Unavailable("i/o error"));
  MustSubmit(Wide("j"));  // The repeat is answered from memory.
  b_.Disconnect();
  ASSERT_TRUE(b_.Connect(coordinator_.get()).ok()) << "nothing new to store";
  const size_t told = b_.assignments.size();
  Run();
  EXPECT_GT(b_.assignments.size(), told);
  Pass(2min);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(b_.Find("j")->assignment.goal, Goal::kGo);
}

TEST_F(CoordinatorTest, VersionCountsCommits) {
  EXPECT_EQ(coordinator_->queries()->version(), 0);
  MustSubmit(Wide("j"));
  EXPECT_EQ(coordinator_->queries()->version(), 1);
  EXPECT_EQ(Get("j").resource_version, 1);
  Restart();
  EXPECT_EQ(coordinator_->queries()->version(), 1);
  EXPECT_EQ(coordinator_->epoch(), 2u);
}

TEST_F(CoordinatorTest, TheReductionPlanOutlivesTheCoordinator) {
  ReductionPlan plan;
  plan.ranks = plan.hosts = 2;
  plan.bucket_bytes = plan.first_bucket_bytes = plan.last_bucket_bytes = 4096;
  plan.layout = "0123456789abcdef";
  const std::string text = Format(plan).value();
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  const bool a_has_rank_0 = Get("j").tasks[0].node == "a";
  FakeDaemon& first = a_has_rank_0 ? a_ : b_;
  first.Find("j")->status.reduction_plan = text;
  first.Publish("j", 1, 3);
  Run();
  EXPECT_EQ(Get("j").reduction_plan, text);
  Restart();
  EXPECT_EQ(Get("j").reduction_plan, text);
  Connect(&a_);
  Connect(&b_);
  Run();
  // The next generation gets it.
  a_.Exit("j", a_has_rank_0 ? 0 : 1, KilledBy(9));
  Pass(5s);
  ASSERT_EQ(Get("j").generation, 2u);
  bool given = false;
  for (const Assignment& assignment : b_.assignments) {
    if (assignment.generation != 2 || assignment.goal != Goal::kLaunch) {
      continue;
    }
    EXPECT_EQ(assignment.spec->reduction_plan, text);
    given = true;
  }
  EXPECT_TRUE(given);
}

TEST_F(CoordinatorTest, AStoredJobThatAsksForGlooTakesAuto) {
  JobSpec spec = Wide("j");
  spec.argv = {"lockstep-train", "--backend=gloo"};
  MustSubmit(spec);
  Restart();
  EXPECT_EQ(Get("j").spec.argv, spec.argv);
  Connect(&a_);
  Connect(&b_);
  Run();
  ASSERT_TRUE(a_.Find("j") != nullptr);
  EXPECT_THAT(a_.Find("j")->assignment.spec->tasks[0].argv,
              testing::ElementsAre("lockstep-train", "--backend=auto"));
  Restart();
  EXPECT_EQ(Get("j").spec.argv,
            (std::vector<std::string>{"lockstep-train", "--backend=auto"}));
  EXPECT_TRUE(std::ranges::any_of(Get("j").events, [](const Event& event) {
    return event.reason == Reason::kBackendReplaced;
  }));
}

// The coordinator dies in each state and goes on where the store says.
TEST_F(CoordinatorTest, RestartInEveryStateGoesOn) {
  struct Point {
    const char* name;
    std::function<void()> reach;
  };
  int number = 0;
  const std::vector<Point> points = {
      {"queued", [] {}},
      {"preparing",
       [&] {
         a_.habits.prepares = false;
         Connect(&a_);
         Connect(&b_);
         Run();
       }},
      {"forming",
       [&] {
         a_.habits.joins = false;
         Connect(&a_);
         Connect(&b_);
         Run();
       }},
      {"running",
       [&] {
         Connect(&a_);
         Connect(&b_);
         Run();
       }},
      {"failing",
       [&] {
         Connect(&a_);
         Connect(&b_);
         Run();
         a_.habits.stops = false;
         b_.Exit(fmt::format("j{}", number), 1, ExitCode(1));
         Run();
       }},
      {"placing",
       [&] {
         a_.habits.joins = false;
         Connect(&a_);
         Connect(&b_);
         Run();
         b_.Exit(fmt::format("j{}", number), 1, ExitCode(1));
         Run();
       }},
  };
  for (const Point& point : points) {
    SCOPED_TRACE(point.name);
    const JobName name = fmt::format("j{}", ++number);
    MustSubmit(Wide(name));
    point.reach();
    if (testing::Test::HasFatalFailure()) return;
    const Job before = Get(name);
    EXPECT_FALSE(IsFinal(before.state));
    Restart();
    Job after = Get(name);
    // An active job's history has the restart, and nothing else is changed.
    if (IsActive(before.state)) {
      EXPECT_EQ(after.events.back().reason, Reason::kCoordinatorRestarted);
      EXPECT_GT(after.resource_version, before.resource_version);
      after.events.pop_back();
      after.resource_version = before.resource_version;
    }
    EXPECT_EQ(after, before);
    a_.habits = b_.habits = {};
    clock_.Advance(1s);
    Connect(&a_);
    Connect(&b_);
    Run();
    EXPECT_EQ(State(name), JobState::kRunning);
    a_.Exit(name, 0, ExitCode(0));
    b_.Exit(name, 1, ExitCode(0));
    Run();
    EXPECT_EQ(State(name), JobState::kSucceeded);
    a_.Disconnect();
    b_.Disconnect();
    Restart();
  }
}

// A store that cannot write is no reason not to start.
TEST_F(CoordinatorTest, RestartThatCannotBeNotedIsStillOne) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  ASSERT_EQ(State("j"), JobState::kRunning);
  const Job before = Get("j");
  store_.FailWith(ResourceExhausted("the disk is full"));
  Restart();
  EXPECT_EQ(Get("j"), before);
}

TEST_F(CoordinatorTest, RestartWhileFinishingEndsWithTheStoredOutcome) {
  Connect(&a_);
  Connect(&b_);
  JobSpec spec = Wide("j");
  spec.end_with = EndWith::kChief;
  MustSubmit(spec);
  Run();
  b_.habits.stops = false;
  a_.Exit("j", 0, ExitCode(0));
  Run();
  ASSERT_EQ(State("j"), JobState::kFinishing);
  Restart();
  b_.habits.stops = true;
  b_.Exit("j", 1, ExitCode(9));
  Connect(&a_);
  Connect(&b_);
  Run();
  EXPECT_EQ(State("j"), JobState::kSucceeded);
}

// Found by tests/simulation, seed 4400: the job waited until the clock showed
// the old date again.
TEST_F(CoordinatorTest, RestartAfterTheDateWasSetBackWaitsNoLonger) {
  Connect(&a_);
  JobSpec spec = NativeSpec("j", 1);
  spec.restart_budget = 9;
  MustSubmit(spec);
  Run();
  for (int i = 0; i < 9 && State("j") != JobState::kPlacing; ++i) {
    ASSERT_EQ(State("j"), JobState::kRunning);
    a_.Exit("j", 0, ExitCode(1));
    Run();
  }
  ASSERT_TRUE(Get("j").not_before.has_value());
  clock_.JumpWall(-1h);
  Restart();
  Connect(&a_);
  Pass(62s);
  EXPECT_EQ(State("j"), JobState::kRunning);
}

// Nobody is declared lost before there was time to come back.
TEST_F(CoordinatorTest, RestartDeclaresNobodyLost) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  clock_.Advance(1h);
  Restart();
  Run();
  EXPECT_EQ(coordinator_->queries()->GetNode("b")->member.state,
            NodeState::kUnknown);
  EXPECT_EQ(State("j"), JobState::kRunning);
  Connect(&a_);
  Run();
  Pass(60s);
  EXPECT_EQ(State("j"), JobState::kRunning);
  Connect(&b_);
  Run();
  EXPECT_EQ(Get("j").generation, 1u);
}

TEST_F(CoordinatorTest, RankThatDiedWhileTheCoordinatorWasAway) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  Restart();
  b_.Exit("j", 1, KilledBy(SIGSEGV));
  Connect(&a_);
  Connect(&b_);
  Run();
  EXPECT_EQ(Get("j").generation, 2u);
  EXPECT_EQ(State("j"), JobState::kRunning);
}

TEST_F(CoordinatorTest, SqliteServesAsWell) {
  auto sqlite = OpenSqliteStore(":memory:");
  ASSERT_TRUE(sqlite.ok()) << Message(sqlite.status());
  CoordinatorOptions options;
  options.new_uid = [] { return std::string("uid"); };
  options.new_key = [] { return std::string(32, 'k'); };
  for (uint64_t epoch = 1; epoch <= 2; ++epoch) {
    WatchHub hub;
    auto coordinator =
        std::make_unique<Coordinator>(options, sqlite->get(), &clock_, &hub);
    ASSERT_TRUE(coordinator->Load().ok());
    EXPECT_EQ(coordinator->epoch(), epoch);
    std::swap(coordinator, coordinator_);
    Connect(&a_);
    Connect(&b_);
    MustSubmit(Wide("j"));
    Run();
    EXPECT_EQ(State("j"), JobState::kRunning);
    a_.Disconnect();
    b_.Disconnect();
    std::swap(coordinator, coordinator_);
  }
}

}  // namespace
}  // namespace lockstep::server
