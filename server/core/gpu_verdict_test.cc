#include "server/core/gpu_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::server {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class GpuVerdictTest : public testing::Test {
 protected:
  // A reading of each second for `time`; the first verdict.
  std::optional<GpuVerdict> Read(const GpuUsage& usage, Duration time = 0s,
                                 bool withheld = false) {
    const MonoTime end = now_.mono + time;
    for (;;) {
      auto verdict = judge_.TakeReading(gpu_, usage, withheld, now_);
      if (verdict || now_.mono >= end) return verdict;
      Pass(1s);
    }
  }
  void Pass(Duration time) {
    now_.mono += time;
    now_.wall += time;
  }
  // A run on GPU-a and GPU-b.
  void Run(const std::string& uid, const std::set<std::string>& died) {
    judge_.NoteRun({"GPU-a", "GPU-b"}, died, uid);
  }

  Time now_{};
  Gpu gpu_{0, "GPU-a", "T4", 1};
  GpuJudge judge_;
};

TEST_F(GpuVerdictTest, AnXidOfTheHardwareLastsUntilABoot) {
  for (const int32_t xid : {46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 119, 120,
                            136, 140, 143, 151, 155, 156, 158}) {
    const auto verdict = judge_.TakeXid(xid);
    ASSERT_TRUE(verdict) << xid;
    EXPECT_EQ(verdict->reason, fmt::format("Xid {}", xid));
    EXPECT_FALSE(verdict->length);
  }
  // A program's own faults, and what the driver repaired or contained; what
  // follows another Xid, or names what that asks for.
  for (const int32_t xid :
       {8, 13, 31, 43, 45, 63, 68, 69, 92, 94, 137, 145, 154, 160}) {
    EXPECT_FALSE(judge_.TakeXid(xid)) << xid;
  }
}

TEST_F(GpuVerdictTest, ReadingsThatAreBad) {
  struct Case {
    const char* what;
    GpuUsage usage;
    Duration after;
    const char* reason;  // Null: no verdict.
  };
  std::vector<Case> cases;
  const auto add = [&](const char* what, Duration after, const char* reason) {
    return &cases.emplace_back(Case{what, {}, after, reason}).usage;
  };
  add("nothing is known", 1h, nullptr);
  add("failed", 0s, "could not be replaced")->remap_failed = true;
  add("pending", 0s, "waits for a reset")->remap_pending = true;
  add("none pending", 1h, nullptr)->remap_pending = false;
  GpuUsage* usage = add("narrow", 60s, "8 of 16 lanes");
  usage->pcie_width = 8;
  usage->pcie_width_max = 16;
  usage = add("wide", 1h, nullptr);
  usage->pcie_width = usage->pcie_width_max = 8;
  usage = add("no width", 1h, nullptr);
  usage->pcie_width = 0;
  usage->pcie_width_max = 16;
  add("hot", 600s, "(hw_thermal) for 10 m 00 s")->slowdown = "hw_thermal";
  add("old errors", 1h, nullptr)->uncorrected_errors = 7;
  for (const Case& c : cases) {
    judge_ = GpuJudge();
    const MonoTime begun = now_.mono;
    const auto verdict = Read(c.usage, c.after);
    EXPECT_EQ(verdict.has_value(), c.reason != nullptr) << c.what;
    EXPECT_EQ(now_.mono - begun, c.after) << c.what;
    if (!verdict || c.reason == nullptr) continue;
    EXPECT_THAT(verdict->reason, HasSubstr(c.reason)) << c.what;
    EXPECT_EQ(verdict->length, 1h) << c.what;
  }
}

TEST_F(GpuVerdictTest, AShortBreakDoesNotEndASlowdown) {
  GpuUsage hot;
  hot.slowdown = "sw_thermal";
  EXPECT_FALSE(Read(hot, 300s));
  EXPECT_FALSE(Read({}, 29s));
  EXPECT_FALSE(Read(hot, 200s));
  // A longer one does.
  EXPECT_FALSE(Read({}, 40s));
  EXPECT_FALSE(Read(hot, 599s));
  Pass(1s);
  EXPECT_TRUE(Read(hot));
}

TEST_F(GpuVerdictTest, ALostLinkIsOneThatWasThere) {
  GpuUsage usage;
  usage.nvlinks = 17;  // As many as it ever had.
  EXPECT_FALSE(Read(usage, 1h));
  usage.nvlinks = 15;
  EXPECT_FALSE(Read(usage, 59s));
  Pass(1s);
  EXPECT_THAT(Read(usage)->reason, HasSubstr("15 of its 17 NVLinks"));
}

TEST_F(GpuVerdictTest, NewErrorsCountAndVerdictsBecomeLonger) {
  GpuUsage usage;
  usage.uncorrected_errors = 7;
  EXPECT_FALSE(Read(usage)) << "from before";
  usage.uncorrected_errors = 9;
  auto verdict = Read(usage);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->reason, "2 uncorrected memory errors");
  EXPECT_EQ(verdict->length, 1h);
  EXPECT_FALSE(Read(usage, 1h, /*withheld=*/true));
  EXPECT_FALSE(Read(usage)) << "they were judged";
  // The driver was loaded again.
  usage.uncorrected_errors = 0;
  EXPECT_FALSE(Read(usage));
  for (const Duration length : {2h, 4h, 8h, 16h, 24h, 24h}) {
    ++*usage.uncorrected_errors;
    verdict = Read(usage);
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->length, length);
    Pass(length);
  }
  Pass(24h);
  ++*usage.uncorrected_errors;
  EXPECT_EQ(Read(usage)->length, 1h);
}

TEST_F(GpuVerdictTest, AReadingThatStaysBadIsJudgedAgainAtTheEnd) {
  GpuUsage usage;
  usage.remap_pending = true;
  EXPECT_EQ(Read(usage)->length, 1h);
  EXPECT_FALSE(Read(usage, 1h, /*withheld=*/true));
  EXPECT_EQ(Read(usage)->length, 2h);
}

TEST_F(GpuVerdictTest, AnOperatorsWordIsStrongerThanAStandingReading) {
  GpuUsage usage;
  usage.remap_pending = true;
  usage.uncorrected_errors = 1;
  ASSERT_TRUE(Read(usage));
  judge_.Lift("GPU-a");
  gpu_.lift_end = now_.wall + 24h;
  // Also of a coordinator that was started again.
  EXPECT_FALSE(GpuJudge().TakeReading(gpu_, usage, false, now_));
  EXPECT_FALSE(Read(usage, 1h));
  // New errors are news.
  usage.uncorrected_errors = 2;
  EXPECT_THAT(Read(usage)->reason, HasSubstr("1 uncorrected memory error"));
  judge_.Lift("GPU-a");
  gpu_.lift_end = now_.wall + 24h;
  EXPECT_FALSE(Read(usage, 24h - 1s));
  Pass(1s);
  EXPECT_THAT(Read(usage)->reason, HasSubstr("waits for a reset"));
}

TEST_F(GpuVerdictTest, AFailedCheckIsAVerdictLikeOthers) {
  GpuUsage usage;
  usage.remap_failed = true;
  EXPECT_EQ(Read(usage)->length, 1h);
  Pass(1h);
  const GpuVerdict verdict =
      judge_.TakeFailedCheck("GPU-a", "memory: 3 wrong words", now_);
  EXPECT_EQ(verdict.reason, "memory: 3 wrong words");
  EXPECT_EQ(verdict.length, 2h);
  EXPECT_EQ(judge_.TakeFailedCheck("", "hangs", now_).length, 1h)
      << "of one without a UUID nothing is remembered";
}

TEST_F(GpuVerdictTest, JobsThatDieOnOneGpuOnly) {
  Run("u1", {"GPU-a"});
  Run("u1", {"GPU-a"});
  Run("u1", {"GPU-a"});
  EXPECT_FALSE(judge_.JudgeRuns("GPU-a", now_)) << "one job may be the reason";
  Run("u2", {"GPU-a"});
  EXPECT_FALSE(judge_.JudgeRuns("GPU-b", now_));
  const auto verdict = judge_.JudgeRuns("GPU-a", now_);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->reason,
            "4 of the last 4 runs on it died there first, of others 0 of 4");
  EXPECT_EQ(verdict->length, 1h);
  EXPECT_FALSE(judge_.JudgeRuns("GPU-a", now_)) << "they were judged";
}

TEST_F(GpuVerdictTest, JobsThatDieEverywhereAreNoVerdict) {
  for (int i = 0; i < 4; ++i) {
    Run(fmt::format("u{}", i), {"GPU-a"});
    Run(fmt::format("u{}", i), {"GPU-b"});
  }
  EXPECT_FALSE(judge_.JudgeRuns("GPU-a", now_));
  EXPECT_FALSE(judge_.JudgeRuns("GPU-b", now_));
}

TEST_F(GpuVerdictTest, AGpuThatIsAloneIsComparedWithNone) {
  for (int i = 0; i < 8; ++i) {
    judge_.NoteRun({"GPU-a"}, {"GPU-a"}, fmt::format("u{}", i));
  }
  EXPECT_FALSE(judge_.JudgeRuns("GPU-a", now_));
}

}  // namespace
}  // namespace lockstep::server
