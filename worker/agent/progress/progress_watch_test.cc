#include "worker/agent/progress/progress_watch.h"

#include <gtest/gtest.h>

#include <memory>

#include "worker/agent/progress/activity.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;

class ProgressWatchTest : public testing::Test {
 protected:
  bool Stalled() const {
    const ProgressSigns signs = watch_->Signs(now_);
    return signs.still > signs.limit;
  }
  void Beat(Duration passed = 1s) {
    now_ += passed;
    watch_->Look(now_);
    if (busy_) watch_->TakeSign(SignSource::kActivity, now_);
  }
  // `count` signs, one every `distance`.
  void Signs(SignSource source, int count, Duration distance = 1s) {
    for (int i = 0; i < count; ++i) {
      for (Duration passed{}; passed < distance; passed += 1s) {
        Beat();
        EXPECT_FALSE(Stalled());
      }
      watch_->TakeSign(source, now_);
    }
  }
  // Without a sign from here on: the time until it is called a stall.
  std::optional<Duration> After(Duration longest = 3h) {
    const MonoTime begin = now_;
    while (now_ - begin < longest) {
      if (Stalled()) return now_ - begin;
      Beat();
    }
    return std::nullopt;
  }
  void Limit(Duration stall_after) {
    SignLimits limits;
    limits.stall_after = stall_after;
    watch_ = std::make_unique<ProgressWatch>(limits, now_);
  }

  MonoTime now_ = MonoTime(1h);
  std::unique_ptr<ProgressWatch> watch_ =
      std::make_unique<ProgressWatch>(SignLimits(), now_);
  // Uses the CPU.
  bool busy_ = false;
};

TEST_F(ProgressWatchTest, StepsOfASessionAreMissedAfterTenSeconds) {
  Signs(SignSource::kSession, 50);
  EXPECT_EQ(watch_->Signs(now_).source, SignSource::kSession);
  EXPECT_EQ(watch_->Signs(now_).usual, 1s);
  EXPECT_EQ(After(), 11s);
}

TEST_F(ProgressWatchTest, ItsFirstStepsAreMissedAfterAMinute) {
  Signs(SignSource::kSession, 5);
  EXPECT_EQ(After(), 61s);
}

TEST_F(ProgressWatchTest, SlowStepsAreMissedAfterFourOfThem) {
  Signs(SignSource::kSession, 20, 30s);
  EXPECT_EQ(watch_->Signs(now_).usual, 30s);
  EXPECT_EQ(After(), 121s);
}

TEST_F(ProgressWatchTest, LogLinesAndFilesAreMissedAfterAMinute) {
  for (const SignSource source : {SignSource::kLog, SignSource::kFiles}) {
    watch_ = std::make_unique<ProgressWatch>(SignLimits(), now_);
    Signs(source, 50);
    EXPECT_EQ(After(), 61s);
  }
}

TEST_F(ProgressWatchTest, OneLongPauseOfAHundredIsUnusual) {
  Signs(SignSource::kLog, 60);
  Signs(SignSource::kLog, 1, 50s);
  Signs(SignSource::kLog, 38);
  EXPECT_EQ(watch_->Signs(now_).usual, 50s) << "of fewer than a hundred";
  Signs(SignSource::kLog, 20);
  EXPECT_EQ(watch_->Signs(now_).usual, 1s);
}

TEST_F(ProgressWatchTest, WorkWithoutStepsMayBeAnEvaluation) {
  Signs(SignSource::kLog, 50);
  busy_ = true;
  EXPECT_EQ(After(), 10min + 1s) << "or a collective that spins";
}

TEST_F(ProgressWatchTest, TheTimeBeginsWhenTheWorkEnds) {
  Signs(SignSource::kLog, 50);
  busy_ = true;
  for (int i = 0; i < 120; ++i) Beat();
  EXPECT_FALSE(Stalled());
  busy_ = false;
  EXPECT_EQ(After(), 61s);
}

TEST_F(ProgressWatchTest, APhaseThatSaysWhatItDoesGetsAMinute) {
  watch_->SetSays(true);
  Signs(SignSource::kSession, 50);
  busy_ = true;
  EXPECT_EQ(After(), 61s);
}

TEST_F(ProgressWatchTest, APauseMayTakeAnyTime) {
  Signs(SignSource::kSession, 50);
  for (int i = 0; i < 3600; ++i) {
    Beat();
    watch_->TakePause(now_);
    EXPECT_FALSE(Stalled());
  }
  Beat();
  watch_->TakeSign(SignSource::kSession, now_);
  EXPECT_EQ(watch_->Signs(now_).usual, 1s) << "it is no distance of steps";
  EXPECT_EQ(After(), 11s);
}

TEST_F(ProgressWatchTest, BeforeTheFirstSignTenMinutesAreGiven) {
  EXPECT_EQ(After(), 10min + 1s);
  EXPECT_EQ(watch_->Signs(now_).source, SignSource::kNone);
}

TEST_F(ProgressWatchTest, AnImportThatWorksIsGivenMore) {
  busy_ = true;
  for (int i = 0; i < 1200; ++i) Beat();
  EXPECT_FALSE(Stalled());
  EXPECT_EQ(watch_->Signs(now_).source, SignSource::kActivity);
  busy_ = false;
  EXPECT_EQ(After(), 61s);
}

TEST_F(ProgressWatchTest, WhatOnlyWorksNeverStalls) {
  busy_ = true;
  EXPECT_EQ(After(), std::nullopt);
}

TEST_F(ProgressWatchTest, TheBestSourceCounts) {
  Signs(SignSource::kLog, 50);
  for (int i = 0; i < 60; ++i) {
    Beat();
    watch_->TakeSign(SignSource::kFiles, now_);
  }
  EXPECT_EQ(watch_->Signs(now_).source, SignSource::kLog);
  Beat();
  EXPECT_TRUE(Stalled());
}

TEST_F(ProgressWatchTest, ABetterSourceLearnsAnew) {
  Signs(SignSource::kFiles, 20, 30s);
  Signs(SignSource::kSession, 20);
  EXPECT_EQ(watch_->Signs(now_).usual, 1s);
}

TEST_F(ProgressWatchTest, AJobsOwnTimeReplacesTheLearnedOne) {
  Limit(3s);
  Signs(SignSource::kLog, 5);
  busy_ = true;
  EXPECT_EQ(After(), 4s) << "whatever the CPU does";
}

TEST_F(ProgressWatchTest, AJobsOwnTimeIsForActivityWhereNothingElseIsSeen) {
  Limit(3s);
  busy_ = true;
  for (int i = 0; i < 700; ++i) Beat();
  EXPECT_FALSE(Stalled());
  busy_ = false;
  EXPECT_EQ(After(), 4s);
}

TEST_F(ProgressWatchTest, ItHasAGraceBeforeTheFirstSignAllTheSame) {
  Limit(3s);
  EXPECT_EQ(After(), 10min + 1s);
}

TEST_F(ProgressWatchTest, ADaemonThatWasStoppedBlamesNoRank) {
  Signs(SignSource::kLog, 50);
  Beat(5min);
  EXPECT_FALSE(Stalled());
  EXPECT_EQ(After(), 61s);
}

TEST(ActivityTest, BackgroundThreadsAreNone) {
  ActivityMeter meter;
  MonoTime now(1h);
  ActivitySample sample;
  EXPECT_FALSE(meter.Take(sample, now));
  sample.cpu_seconds += 0.02;
  EXPECT_FALSE(meter.Take(sample, now += 1s));
  sample.cpu_seconds += 0.03;
  EXPECT_TRUE(meter.Take(sample, now += 1s));
  EXPECT_FALSE(meter.Take(sample, now += 1s));
}

TEST(ActivityTest, DiskAndGpuCount) {
  ActivityMeter meter;
  MonoTime now(1h);
  ActivitySample sample;
  meter.Take(sample, now);
  sample.disk_bytes += 1000;
  EXPECT_FALSE(meter.Take(sample, now += 1s));
  sample.disk_bytes += 1 << 20;
  EXPECT_TRUE(meter.Take(sample, now += 1s));
  sample.gpu_utilization = 0.5;
  EXPECT_TRUE(meter.Take(sample, now += 1s));
  sample.gpu_utilization = 0.01;
  EXPECT_FALSE(meter.Take(sample, now += 1s));
}

}  // namespace
}  // namespace lockstep::worker::agent
