#include "server/core/idle_watch.h"

#include <gtest/gtest.h>

#include "server/core/testing.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;

class IdleWatchTest : public testing::Test {
 protected:
  IdleWatchTest() {
    watch_.Reset(1);
    for (int32_t i = 0; i < 2; ++i) {
      ranks_[i].rank = i;
      ranks_[i].state = RankState::kStarted;
    }
    Report();
  }
  // Both report every second for `time`; a rank uses that part of a core.
  void Pass(Duration time, double cores_0 = 0, double cores_1 = 0) {
    for (Duration done{}; done < time; done += 1s) {
      now_ += 1s;
      ranks_[0].usage.cpu_seconds += cores_0;
      ranks_[1].usage.cpu_seconds += cores_1;
      Report();
    }
  }
  void Report() {
    for (const RankStatus& rank : ranks_) watch_.Take(rank, gpus_, now_);
  }
  // Whole seconds; -1: it is not idle.
  int64_t Idle(const std::set<int32_t>& ended = {}) const {
    const auto since = watch_.IdleSince(2, ended, now_);
    return since ? (now_ - *since) / 1s : -1;
  }

  IdleWatch watch_;
  RankStatus ranks_[2];
  std::optional<GpusNow> gpus_;
  MonoTime now_{10h};
};

TEST_F(IdleWatchTest, AProgramThatSleepsIsIdleFromItsLastWorkOn) {
  Pass(60s, 1.0, 1.0);
  EXPECT_EQ(Idle(), -1);
  Pass(600s, 0.01, 0.0);
  EXPECT_GE(Idle(), 598);
  EXPECT_LE(Idle(), 601);
  // One of two is enough.
  Pass(4s, 0, 0.5);
  EXPECT_EQ(Idle(), -1);
}

TEST_F(IdleWatchTest, ALoopThatWaitsForLittleIsStillIdle) {
  Pass(300s, 0.015, 0.015);
  EXPECT_GE(Idle(), 298);
  Pass(4s, 0.03, 0.0);
  EXPECT_EQ(Idle(), -1);
}

TEST_F(IdleWatchTest, AGpuThatComputesIsWork) {
  gpus_ = GpusNow{.utilization = 0.0};
  Pass(60s);
  EXPECT_GE(Idle(), 55);
  gpus_->utilization = 0.3;
  Pass(1s);
  EXPECT_EQ(Idle(), -1);
  // That they have computed once is no work for ever.
  gpus_->utilization = 0.0;
  for (RankStatus& rank : ranks_) {
    rank.usage.gpu_utilization = 0.3;
    rank.usage.gpu_utilization_peak = 1;
  }
  Pass(60s);
  EXPECT_GE(Idle(), 55);
  // Nothing is known of a GPU that cannot be read.
  gpus_->utilization.reset();
  Pass(60s);
  EXPECT_EQ(Idle(), -1);
}

TEST_F(IdleWatchTest, PowerFarAboveThatOfAFreeGpuIsWork) {
  // A context without work.
  gpus_ = GpusNow{.utilization = 0.0, .power_ratio = 1.7};
  Pass(60s);
  EXPECT_GE(Idle(), 55);
  gpus_->power_ratio = 2.5;
  Pass(1s);
  EXPECT_EQ(Idle(), -1);
  // What it draws says nothing of a GPU whose use cannot be read.
  gpus_ = GpusNow{.power_ratio = 1.0};
  Pass(60s);
  EXPECT_EQ(Idle(), -1);
}

TEST_F(IdleWatchTest, TrafficAboveAFloorIsWork) {
  const auto carry = [&](int64_t sent, int64_t received, int64_t disk) {
    for (int i = 0; i < 60; ++i) {
      Usage& usage = ranks_[0].usage;
      usage.network_sent_bytes = usage.network_sent_bytes.value_or(0) + sent;
      usage.network_received_bytes =
          usage.network_received_bytes.value_or(0) + received;
      usage.disk_bytes = usage.disk_bytes.value_or(0) + disk;
      Pass(1s);
    }
  };
  carry(10'000, 10'000, 50'000);
  EXPECT_GE(Idle(), 55) << "keep-alives and statistics";
  carry(0, 80'000, 0);
  EXPECT_LE(Idle(), 10) << "it only receives";
  carry(0, 0, 0);
  EXPECT_GE(Idle(), 45);
  carry(80'000, 0, 0);
  EXPECT_LE(Idle(), 10) << "it only sends";
  carry(0, 0, 0);
  carry(0, 0, 80'000);
  EXPECT_LE(Idle(), 10) << "it copies a disk";
  // Statistics once in a while are more than the floor for a moment only.
  carry(0, 0, 0);
  ranks_[0].usage.network_sent_bytes =
      *ranks_[0].usage.network_sent_bytes + 300'000;
  carry(0, 0, 0);
  EXPECT_GE(Idle(), 100);
}

TEST_F(IdleWatchTest, OutputIsWorkAndALineAMinuteIsNone) {
  ranks_[0].usage.log_bytes = 5000;
  for (int minute = 0; minute < 30; ++minute) {
    *ranks_[0].usage.log_bytes += 120;
    Pass(60s);
  }
  EXPECT_GE(Idle(), 1790);
  for (int second = 0; second < 130; ++second) {
    *ranks_[0].usage.log_bytes += 200;
    Pass(1s);
  }
  EXPECT_LE(Idle(), 60);
}

TEST_F(IdleWatchTest, TrafficThatIsNotKnownIsNone) {
  ranks_[0].usage.network_sent_bytes = int64_t{1} << 40;
  ranks_[0].usage.network_received_bytes = 0;
  Pass(60s);
  ranks_[0].usage.network_sent_bytes.reset();
  Pass(60s);
  ranks_[0].usage.network_sent_bytes = int64_t{1} << 41;
  Pass(60s);
  EXPECT_GE(Idle(), 170);
}

TEST_F(IdleWatchTest, ProgressIsWork) {
  Pass(60s);
  ranks_[0].progress.committed_step = 7;
  Pass(1s);
  EXPECT_EQ(Idle(), -1);
  Pass(60s);
  EXPECT_GE(Idle(), 58);
  ranks_[1].progress.signs =
      ProgressSigns{.source = SignSource::kLog, .still = 5s};
  Pass(1s);
  EXPECT_EQ(Idle(), 5);
  // Activity alone is what the floors judge.
  ranks_[1].progress.signs = ProgressSigns{.source = SignSource::kActivity};
  Pass(60s);
  EXPECT_GE(Idle(), 60);
}

TEST_F(IdleWatchTest, OfASilentRankNothingIsKnown) {
  Pass(60s);
  for (int i = 0; i < 11; ++i) {
    now_ += 1s;
    watch_.Take(ranks_[0], std::nullopt, now_);
  }
  EXPECT_EQ(Idle(), -1);
  EXPECT_GE(Idle({1}), 70) << "it has ended";
  EXPECT_EQ(Idle({0, 1}), -1) << "no rank is left";
  EXPECT_EQ(watch_.IdleSince(3, {}, now_), std::nullopt) << "one never came";
}

TEST_F(IdleWatchTest, ANewGenerationBeginsAnew) {
  Pass(600s);
  watch_.Reset(2);
  EXPECT_EQ(Idle(), -1);
  Report();
  Pass(10s);
  EXPECT_LE(Idle(), 10);
}

TEST_F(IdleWatchTest, ARankThatStartsAgainBeginsAnew) {
  Pass(10s, 1.0, 0.0);
  Pass(600s);
  ranks_[0].usage.cpu_seconds = 0;
  Pass(5s);
  EXPECT_LE(Idle(), 5);
}

TEST(IdlePolicyTest, TheTextSaysWhatItCost) {
  JobSpec spec = NativeSpec("j", 2);
  Prices prices;
  prices.core_hour = 0.5;
  EXPECT_EQ(Describe(spec, {30min, 2h}, 30min, prices),
            "no rank has worked for 30 m 00 s (less than 2 % of a core and of "
            "a GPU, and 64 KiB/s of network and of disk, each); what it holds "
            "has cost 0.50 USD meanwhile; it is stopped after 2 h 00 m");
}

TEST(IdlePolicyTest, TheJobsOwnTimesComeFirst) {
  JobSpec spec;
  const IdlePolicy site = {30min, 2h};
  EXPECT_EQ(IdlePolicyOf(spec, site), site);
  EXPECT_EQ(IdlePolicyOf(spec, {}), IdlePolicy());
  spec.idle_stop = 10min;
  EXPECT_EQ(IdlePolicyOf(spec, site), (IdlePolicy{30min, 10min}));
  spec.idle_stop = Duration{};
  spec.idle_notice = 1min;
  EXPECT_EQ(IdlePolicyOf(spec, site), (IdlePolicy{1min, std::nullopt}));
}

}  // namespace
}  // namespace lockstep::server
