#include "server/notify/notification_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "server/core/testing.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr auto kStart = WallTime(std::chrono::hours(500'000));

class NotificationRulesTest : public testing::Test {
 protected:
  NotificationRulesTest() {
    job_.spec = NativeSpec("j", 1);
    job_.spec.labels = {{"team", "vision"}};
    job_.uid = "u1";
    job_.owner = "user/ann";
    job_.create_time = kStart;
    job_.state = JobState::kRunning;
    job_.generation = 1;
    view_.time.wall = kStart;
  }

  // What is news after `pass`.
  std::vector<Notification> After(Duration pass) {
    const WallTime since = view_.time.wall;
    view_.time.wall += pass;
    view_.jobs.clear();
    JobSnapshot snapshot;
    snapshot.job = std::make_shared<const Job>(job_);
    snapshot.stall = stall_;
    snapshot.stall_verdict = verdict_;
    if (stall_) {
      snapshot.waiting = Cause{Reason::kNoProgress, "no progress; " + verdict_};
    }
    snapshot.bill.cost = 3.2;
    snapshot.bill.currency = "USD";
    view_.jobs.push_back({std::move(snapshot), std::nullopt});
    return rules_.Since(since, view_);
  }
  std::vector<std::string> KindsAfter(Duration pass) {
    std::vector<std::string> kinds;
    for (const Notification& n : After(pass)) kinds.emplace_back(Name(n.kind));
    return kinds;
  }
  WallTime Now() const { return view_.time.wall; }
  NodeSnapshot& Node() {
    if (view_.nodes.empty()) {
      view_.nodes.emplace_back().member.info.name = "host-b";
    }
    return view_.nodes[0];
  }

  NotificationRules rules_{"lab", "https://lab:7480"};
  Job job_;
  std::optional<Stall> stall_;
  std::string verdict_;
  CoordinatorView view_;
};

TEST_F(NotificationRulesTest, AJobsWayIsToldOnce) {
  EXPECT_THAT(KindsAfter(1s), IsEmpty());
  job_.start_time = Now() + 500ms;
  const auto started = After(1s);
  ASSERT_EQ(started.size(), 1u);
  EXPECT_EQ(started[0].kind, NotificationKind::kStarted);
  EXPECT_EQ(started[0].job, "j");
  EXPECT_EQ(started[0].owner, "user/ann");
  EXPECT_EQ(started[0].labels.at("team"), "vision");
  EXPECT_EQ(started[0].cost, "3.20 USD");
  EXPECT_EQ(started[0].url, "https://lab:7480/jobs/j");
  EXPECT_THAT(started[0].text, HasSubstr("waited for 1.5 s"));
  EXPECT_THAT(KindsAfter(1s), IsEmpty());
  Attempt& attempt = job_.attempts.emplace_back();
  attempt.ordinal = 1;
  attempt.generation = 1;
  attempt.end_time = Now() + 100ms;
  attempt.end_cause = {Reason::kRankExit, "rank 0 ended with exit code 1"};
  job_.generation = 2;
  const auto restarted = After(1s);
  ASSERT_EQ(restarted.size(), 1u);
  EXPECT_EQ(restarted[0].kind, NotificationKind::kRestarted);
  EXPECT_EQ(restarted[0].reason, "RANK_EXIT");
  EXPECT_EQ(restarted[0].text,
            "attempt 1 ended: rank 0 ended with exit code 1");
  // The last attempt's end is the job's.
  job_.attempts.emplace_back(attempt).end_time = Now() + 100ms;
  job_.state = JobState::kFailed;
  job_.end_time = Now() + 100ms;
  job_.cause = {Reason::kRestartBudget, "three failures"};
  const auto failed = After(1s);
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].kind, NotificationKind::kFailed);
  EXPECT_EQ(failed[0].text, "three failures");
  EXPECT_THAT(KindsAfter(1s), IsEmpty());
}

TEST_F(NotificationRulesTest, EndsHaveKindsOfTheirOwn) {
  for (const auto& [state, kind] :
       {std::pair{JobState::kSucceeded, "finished"},
        std::pair{JobState::kFailed, "failed"},
        std::pair{JobState::kCancelled, "cancelled"}}) {
    job_.state = state;
    job_.end_time = Now() + 1s;
    EXPECT_THAT(KindsAfter(1s), ElementsAre(kind));
  }
}

TEST_F(NotificationRulesTest, AStallIsToldWithItsVerdict) {
  stall_ = Stall{};
  EXPECT_THAT(KindsAfter(1s), IsEmpty()) << "its verdict comes";
  verdict_ = "rank 1 waits in f";
  const auto stalled = After(1s);
  ASSERT_EQ(stalled.size(), 1u);
  EXPECT_EQ(stalled[0].kind, NotificationKind::kStalled);
  EXPECT_EQ(stalled[0].text, "no progress; rank 1 waits in f");
  EXPECT_THAT(KindsAfter(60s), IsEmpty());
  stall_.reset();
  EXPECT_THAT(KindsAfter(1s), IsEmpty());
  // The next one has no verdict in time.
  stall_ = Stall{};
  verdict_.clear();
  EXPECT_THAT(KindsAfter(1s), IsEmpty());
  EXPECT_THAT(KindsAfter(14s), IsEmpty());
  EXPECT_THAT(KindsAfter(1s), ElementsAre("stalled"));
  EXPECT_THAT(KindsAfter(60s), IsEmpty());
}

TEST_F(NotificationRulesTest, ARestartForAStallSaysWhereItHung) {
  Attempt& attempt = job_.attempts.emplace_back();
  attempt.ordinal = 1;
  attempt.generation = 1;
  attempt.end_time = Now() + 100ms;
  attempt.end_cause = {Reason::kStalled, "rank 0 shows no progress for 60 s"};
  Event& event = job_.events.emplace_back();
  event.generation = 1;
  event.reason = Reason::kNoProgress;
  event.message = "when it stood still: rank 1 waits in f";
  const auto restarted = After(1s);
  ASSERT_EQ(restarted.size(), 1u);
  EXPECT_THAT(restarted[0].text, HasSubstr("; when it stood still: rank 1"));
}

TEST_F(NotificationRulesTest, FaultsOfNodesAndGpus) {
  const auto add = [&](Reason reason) {
    Event& event = Node().member.events.emplace_back();
    event.time = Now() + 1s;
    event.reason = reason;
    event.message = "why";
  };
  add(Reason::kNodeSilent);
  add(Reason::kNodeGpuLost);
  add(Reason::kNodeRegistered);
  const auto faults = After(1s);
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_EQ(faults[0].kind, NotificationKind::kNodeFault);
  EXPECT_EQ(faults[0].node, "host-b");
  EXPECT_EQ(faults[0].text, "why");
  EXPECT_EQ(faults[0].reason, "NODE_SILENT");
  EXPECT_EQ(faults[0].url, "https://lab:7480/nodes/host-b");
  EXPECT_EQ(faults[1].kind, NotificationKind::kGpuFault);
  EXPECT_NE(faults[0].id, faults[1].id);
  for (const Reason reason :
       {Reason::kNodeGpuWithheld, Reason::kNodeGpuReclaim}) {
    add(reason);
    EXPECT_THAT(KindsAfter(1s), ElementsAre("gpu-fault"));
  }
  // One that was drained is switched off.
  Node().member.drain.emplace();
  add(Reason::kNodeSilent);
  EXPECT_THAT(KindsAfter(1s), IsEmpty());
  Node().jobs = {"j"};
  add(Reason::kNodeSilent);
  EXPECT_THAT(KindsAfter(1s), ElementsAre("node-fault"));
  add(Reason::kNodeBack);
  EXPECT_THAT(KindsAfter(1s), ElementsAre("node-back"));
}

TEST_F(NotificationRulesTest, AnIdleJobIsTold) {
  Event& event = job_.events.emplace_back();
  event.time = Now() + 1s;
  event.reason = Reason::kIdle;
  event.message = "no rank has worked for 30 m";
  const auto told = After(1s);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind, NotificationKind::kIdle);
  EXPECT_EQ(told[0].text, "no rank has worked for 30 m");
  EXPECT_THAT(KindsAfter(1s), IsEmpty());
}

TEST_F(NotificationRulesTest, ARankOnABadGpuIsToldItsOwner) {
  Event& event = job_.events.emplace_back();
  event.time = Now() + 1s;
  event.reason = Reason::kNodeGpuError;
  event.message = "chief 0 uses GPU 3 of node host-b: Xid 79";
  const auto told = After(1s);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind, NotificationKind::kGpuFault);
  EXPECT_EQ(told[0].owner, "user/ann");
}

}  // namespace
}  // namespace lockstep::server
