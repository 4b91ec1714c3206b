// A program whose daemon says that it shows no progress, and one that does no
// work.
#include <gmock/gmock.h>

#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ProgramHangTest : public CoordinatorTest {
 protected:
  ProgramHangTest() {
    options_.on_captured = [this](const FoundRanks& ranks) {
      captured_.push_back(ranks);
    };
    Restart();
    for (FakeDaemon* daemon : all_) Connect(daemon);
  }

  void Start(HangPolicy hang) {
    JobSpec spec = NativeSpec("j", 1);
    spec.kind = JobKind::kProgram;
    spec.hang = hang;
    MustSubmit(spec);
    Run();
    Run();
    ASSERT_EQ(State("j"), JobState::kRunning);
  }
  FakeDaemon* Host() {
    for (FakeDaemon* daemon : all_) {
      if (daemon->Find("j") != nullptr) return daemon;
    }
    ADD_FAILURE() << "no node has the job";
    return &a_;
  }
  // The daemon reports that the last sign is `still` old, of 60 s allowed.
  void Beat(Duration still) {
    clock_.Advance(500ms);
    FakeDaemon* const host = Host();
    FakeDaemon::Gang* const gang = host->Find("j");
    ProgressSigns signs;
    signs.source = SignSource::kLog;
    signs.still = still;
    signs.limit = 60s;
    for (RankStatus& rank : gang->status.ranks) rank.progress.signs = signs;
    ASSERT_TRUE(host->Progress("j", gang->status.generation, 0).ok());
    Run();
  }
  std::vector<FoundRanks> captured_;

  int Notices() {
    int notices = 0;
    for (const Event& event : Get("j").events) {
      notices += event.reason == Reason::kNoProgress;
    }
    return notices;
  }
};

TEST_F(ProgramHangTest, AWarningIsAllByDefault) {
  Start(HangPolicy::kUnspecified);
  Beat(59s);
  EXPECT_EQ(Notices(), 0);
  Beat(61s);
  EXPECT_EQ(Notices(), 1);
  EXPECT_THAT(Get("j").events.back().message, HasSubstr("--hang warn"));
  const auto seen = coordinator_->queries()->GetJob("j");
  ASSERT_TRUE(seen.ok());
  ASSERT_TRUE(seen->stall);
  EXPECT_EQ(seen->waiting->reason, Reason::kNoProgress);
  for (int i = 0; i < 60; ++i) Beat(62s);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 1u);
  EXPECT_EQ(Notices(), 1);
  Beat(0s);
  EXPECT_EQ(Notices(), 2);
  EXPECT_THAT(Get("j").events.back().message, HasSubstr("goes on"));
}

TEST_F(ProgramHangTest, AWarningIsFollowedByItsVerdict) {
  Start(HangPolicy::kWarn);
  Beat(61s);
  FakeDaemon* const host = Host();
  Run();
  EXPECT_EQ(host->Find("j")->assignment.evidence, 1u) << "the node is asked";
  Beat(62s);
  ASSERT_EQ(captured_.size(), 1u);
  EXPECT_EQ(captured_[0].job_uid, Get("j").uid);
  EXPECT_EQ(captured_[0].generation, 1u);
  EXPECT_EQ(captured_[0].kept_for, Reason::kNoProgress);
  EXPECT_EQ(captured_[0].ranks,
            (std::map<NodeName, std::vector<int32_t>>{{host->info.name, {0}}}));
  coordinator_->jobs()->RecordVerdict(captured_[0],
                                      HangVerdict{"rank 0 waits in f"});
  EXPECT_EQ(Get("j").events.back().message, "rank 0 waits in f");
  const auto seen = coordinator_->queries()->GetJob("j");
  ASSERT_TRUE(seen.ok() && seen->waiting);
  EXPECT_THAT(seen->waiting->message, HasSubstr("; rank 0 waits in f"));
  Beat(63s);
  EXPECT_EQ(captured_.size(), 1u) << "once for each stall";
  // Another job with its name is none of the verdict's business.
  FoundRanks other = captured_[0];
  other.job_uid = "another";
  coordinator_->jobs()->RecordVerdict(other, HangVerdict{"rank 0 runs in g"});
  EXPECT_EQ(Get("j").events.back().message, "rank 0 waits in f");
  // A later stall has a verdict of its own.
  Beat(0s);
  for (int i = 0; i < 120; ++i) Beat(0s);
  Beat(61s);
  Beat(62s);
  EXPECT_EQ(host->Find("j")->assignment.evidence, 2u);
  const auto again = coordinator_->queries()->GetJob("j");
  ASSERT_TRUE(again.ok() && again->waiting);
  EXPECT_THAT(again->waiting->message, Not(HasSubstr("rank 0 waits in f")));
  Beat(63s);
  EXPECT_EQ(captured_.size(), 2u);
}

TEST_F(ProgramHangTest, ALimitOfTheRunningTimeWaitsForEvidence) {
  JobSpec spec = NativeSpec("j", 1);
  spec.kind = JobKind::kProgram;
  spec.max_running_time = 60s;
  MustSubmit(spec);
  Run();
  Run();
  ASSERT_EQ(State("j"), JobState::kRunning);
  FakeDaemon* const host = Host();
  for (FakeDaemon* daemon : all_) daemon->habits.captures = false;
  for (int i = 0; i < 123; ++i) Beat(0s);
  EXPECT_EQ(host->Find("j")->assignment.evidence, 1u);
  EXPECT_EQ(State("j"), JobState::kRunning);
  host->Find("j")->status.evidence_done = 1;
  host->Find("j")->dirty = true;
  Beat(0s);
  Pass(2s);
  EXPECT_EQ(State("j"), JobState::kCancelled);
  EXPECT_TRUE(captured_.empty()) << "it did not stand still";
  const auto found = coordinator_->queries()->FindKept(
      "j", {}, 0, [](const Job&) { return OkStatus(); });
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->kept_for, Reason::kMaxRunningTime);
}

TEST_F(ProgramHangTest, ARestartComesOnceEvidenceIsCaptured) {
  Start(HangPolicy::kRestart);
  for (FakeDaemon* daemon : all_) daemon->habits.captures = false;
  Beat(61s);
  FakeDaemon* const host = Host();
  Run();
  EXPECT_EQ(host->Find("j")->assignment.evidence, 1u) << "the node is asked";
  Beat(62s);
  EXPECT_EQ(Get("j").generation, 1u);
  EXPECT_FALSE(Get("j").failing);
  host->Find("j")->status.evidence_done = 1;
  host->Find("j")->dirty = true;
  Beat(62s);
  Pass(2s);
  const Job job = Get("j");
  ASSERT_EQ(job.attempts.size(), 1u);
  EXPECT_EQ(job.attempts[0].end_cause.reason, Reason::kStalled);
  EXPECT_EQ(job.generation, 2u);
}

// Two ranks that can recover in place; both show no sign.
class RecoverableHangTest : public ProgramHangTest {
 protected:
  void Stall() {
    JobSpec spec =
        ProgramSpec("j", {Role(TaskType::kChief, 1, {2, 0, 0, ""}),
                          Role(TaskType::kWorker, 1, {2, 0, 0, ""})});
    spec.hang = HangPolicy::kRestart;
    MustSubmit(spec);
    Run();
    Run();
    for (FakeDaemon* daemon : all_) {
      FakeDaemon::Gang* const gang = daemon->Find("j");
      ASSERT_NE(gang, nullptr);
      for (RankStatus& rank : gang->status.ranks) rank.recoverable = true;
      gang->dirty = true;
    }
    Run();
    Still();
    ASSERT_EQ(captured_.size(), 1u);
  }
  void Still() {
    clock_.Advance(500ms);
    for (FakeDaemon* daemon : all_) {
      FakeDaemon::Gang* const gang = daemon->Find("j");
      ProgressSigns signs;
      signs.source = SignSource::kSession;
      signs.still = 62s;
      signs.limit = 60s;
      for (RankStatus& rank : gang->status.ranks) rank.progress.signs = signs;
      ASSERT_TRUE(daemon->Progress("j", gang->status.generation, 0).ok());
    }
    Run();
    Run();
  }
};

TEST_F(RecoverableHangTest, TheRankThatEvidenceNamesIsReplaced) {
  Stall();
  Still();
  EXPECT_EQ(Get("j").recovery, 0u) << "the verdict is not known yet";
  EXPECT_FALSE(Get("j").failing);
  coordinator_->jobs()->RecordVerdict(captured_[0],
                                      HangVerdict{"rank 1 is stopped", {1}});
  Still();
  const Job job = Get("j");
  EXPECT_EQ(job.recovery, 1u);
  EXPECT_EQ(RanksOf(job)[1]->restarts, 1);
  EXPECT_EQ(RanksOf(job)[0]->restarts, 0);
  EXPECT_EQ(job.generation, 1u);
}

TEST_F(RecoverableHangTest, WhereEvidenceNamesNoneTheGangRestarts) {
  Stall();
  coordinator_->jobs()->RecordVerdict(captured_[0],
                                      HangVerdict{"it cannot be known"});
  Still();
  EXPECT_TRUE(Get("j").failing || Get("j").generation == 2);
  EXPECT_EQ(Get("j").recoveries, 0);
}

TEST_F(RecoverableHangTest, AVerdictThatDoesNotComeIsNotWaitedFor) {
  Stall();
  for (int i = 0; i < 4; ++i) Still();
  EXPECT_FALSE(Get("j").failing);
  for (int i = 0; i < 4 && Get("j").generation == 1; ++i) Still();
  EXPECT_TRUE(Get("j").failing || Get("j").generation == 2);
  EXPECT_EQ(Get("j").recoveries, 0);
}

TEST_F(ProgramHangTest, WhatWasKeptOfAStalledAttemptIsFound) {
  Start(HangPolicy::kRestart);
  const auto may = [](const Job&) { return OkStatus(); };
  const ClusterQueries* const queries = coordinator_->queries();
  EXPECT_EQ(queries->FindKept("j", {}, 0, may).status().code(),
            StatusCode::kFailedPrecondition);
  const NodeName node = Host()->info.name;
  Beat(61s);
  Pass(2s);
  ASSERT_EQ(Get("j").generation, 2u);
  const auto found = queries->FindKept("j", {}, 0, may);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->generation, 1u);
  EXPECT_EQ(found->job_uid, Get("j").uid);
  EXPECT_EQ(found->attempt, 1);
  EXPECT_EQ(found->kept_for, Reason::kStalled);
  EXPECT_TRUE(found->ended.contains(0)) << "its end is known";
  EXPECT_TRUE(queries->FindKept("j", {}, 1, may).ok());
  EXPECT_EQ(queries->FindKept("j", {}, 2, may).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(found->ranks,
            (std::map<NodeName, std::vector<int32_t>>{{node, {0}}}));
  EXPECT_EQ(queries->FindKept("j", {7}, 0, may).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(
      queries
          ->FindKept("j", {}, 0,
                     [](const Job&) { return PermissionDenied("not yours"); })
          .status()
          .code(),
      StatusCode::kPermissionDenied);
}

TEST_F(ProgramHangTest, AFailureIsWhatIsKeptAfterAStallThatPassed) {
  Start(HangPolicy::kRestart);
  for (FakeDaemon* daemon : all_) daemon->habits.captures = false;
  Beat(61s);
  EXPECT_EQ(Notices(), 1);
  Beat(0s);
  FakeDaemon* const host = Host();
  host->Exit("j", 0, Code(1));
  Pass(2s);
  ASSERT_EQ(Get("j").attempts.size(), 1u);
  const auto kept = coordinator_->queries()->FindKept(
      "j", {}, 0, [](const Job&) { return OkStatus(); });
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->kept_for, Reason::kRankExit);
  EXPECT_EQ(kept->failed, std::vector<int32_t>{0});
  EXPECT_NE(kept->failure, "");
}

TEST_F(ProgramHangTest, ANodeThatDoesNotAnswerDelaysItByFiveSeconds) {
  Start(HangPolicy::kRestart);
  for (FakeDaemon* daemon : all_) daemon->habits.captures = false;
  Beat(61s);
  for (int i = 0; i < 9; ++i) Beat(62s);
  EXPECT_EQ(Get("j").generation, 1u);
  EXPECT_FALSE(Get("j").failing);
  Beat(62s);
  Beat(62s);
  Pass(2s);
  EXPECT_EQ(Get("j").generation, 2u);
}

TEST_F(ProgramHangTest, AJobMaySwitchItOff) {
  Start(HangPolicy::kOff);
  for (int i = 0; i < 20; ++i) Beat(1000s);
  EXPECT_EQ(Notices(), 0);
  EXPECT_FALSE(coordinator_->queries()->GetJob("j")->stall);
}

class IdleJobTest : public ProgramHangTest {
 protected:
  IdleJobTest() {
    options_.idle = {30s, 60s};
    options_.prices.core_hour = 120;
    Restart();
    for (FakeDaemon* daemon : all_) Connect(daemon);
  }
  // Reports for that long, with that part of a core in use.
  void Work(Duration time, double cores) {
    for (Duration done{}; done < time; done += 500ms) {
      clock_.Advance(500ms);
      FakeDaemon* const host = Host();
      FakeDaemon::Gang* const gang = host->Find("j");
      for (RankStatus& rank : gang->status.ranks) {
        rank.usage.cpu_seconds += cores / 2;
      }
      ASSERT_TRUE(host->Progress("j", gang->status.generation, 0).ok());
      Run();
    }
  }
  std::vector<std::string> Told() {
    std::vector<std::string> told;
    for (const Event& event : Get("j").events) {
      if (event.reason == Reason::kIdle) told.push_back(event.message);
    }
    return told;
  }
};

TEST_F(IdleJobTest, ItIsToldAndThenStopped) {
  Start(HangPolicy::kOff);
  Work(20s, 1);
  Work(29s, 0);
  EXPECT_THAT(Told(), IsEmpty());
  Work(4s, 0);
  ASSERT_EQ(Told().size(), 1u);
  EXPECT_THAT(Told()[0], HasSubstr("no rank has worked for 30"));
  EXPECT_THAT(Told()[0], HasSubstr("has cost 1.0"));
  EXPECT_THAT(Told()[0], HasSubstr("stopped after 1 m 00 s"));
  Work(25s, 0);
  EXPECT_EQ(State("j"), JobState::kRunning);
  for (int i = 0; i < 10 && State("j") == JobState::kRunning; ++i) {
    Work(500ms, 0);
  }
  Pass(2s);
  EXPECT_EQ(State("j"), JobState::kCancelled);
  EXPECT_EQ(Get("j").cause.reason, Reason::kIdle);
  EXPECT_THAT(Get("j").cause.message, HasSubstr("--idle-stop"));
}

TEST_F(IdleJobTest, ItMayWorkAgain) {
  Start(HangPolicy::kOff);
  Work(50s, 0);
  EXPECT_EQ(Told().size(), 1u);
  Work(5s, 0.5);
  ASSERT_EQ(Told().size(), 2u);
  EXPECT_EQ(Told()[1], "a rank works again");
  Work(50s, 0);
  EXPECT_EQ(Told().size(), 3u);
  EXPECT_EQ(State("j"), JobState::kRunning);
}

TEST_F(IdleJobTest, ItsOwnTimesComeFirst) {
  JobSpec spec = NativeSpec("j", 1);
  spec.kind = JobKind::kProgram;
  spec.hang = HangPolicy::kOff;
  spec.idle_notice = spec.idle_stop = Duration{};
  MustSubmit(spec);
  Run();
  Run();
  Work(300s, 0);
  EXPECT_THAT(Told(), IsEmpty());
  EXPECT_EQ(State("j"), JobState::kRunning);
}

}  // namespace
}  // namespace lockstep::server
