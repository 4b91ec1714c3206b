#include "worker/agent/readings/rank_readings.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <limits>

namespace lockstep::worker::agent {
namespace {

TEST(RankReadingsTest, APageBecomesProgress) {
  task::RankPage page;
  page.progress.generation = 3;
  page.progress.step = 11;
  page.progress.last_committed = 10;
  page.progress.phase = task::RankPhase::kAllReduce;
  page.has_counters = true;
  page.counters.samples = 640;
  page.counters.phase_seconds[1] = 2.5;
  page.counters.phase_seconds[8] = 3.5;
  page.counters.has_loss = true;
  page.counters.last_loss = 0.5;
  page.counters.values = {{"accuracy", 0.9}};
  const RankProgress progress = ToProgress(page, 3);
  EXPECT_EQ(progress.step, 11);
  EXPECT_EQ(progress.committed_step, 10);
  EXPECT_EQ(progress.phase, "allreduce");
  EXPECT_EQ(progress.samples, 640);
  EXPECT_EQ(progress.phases.compute, 2.5);
  EXPECT_EQ(progress.phases.compile, 3.5);
  EXPECT_EQ(progress.loss, 0.5);
  EXPECT_EQ(progress.values.at("accuracy"), 0.9);
  // A page of another generation says nothing about this one.
  EXPECT_EQ(ToProgress(page, 4), RankProgress());
}

TEST(RankReadingsTest, WhatARankWaitsForIsTold) {
  task::RankPage page;
  EXPECT_FALSE(ToProgress(page, 0).collective_wait) << "an older runtime";
  page.wait.beat = 1;
  EXPECT_EQ(ToProgress(page, 0).collective_wait, CollectiveWait());
  page.wait = {2, true, false, -1, 5};
  EXPECT_EQ(ToProgress(page, 0).collective_wait,
            (CollectiveWait{false, false, std::nullopt, 5}));
  page.wait = {3, true, true, 4, 6};
  EXPECT_EQ(ToProgress(page, 0).collective_wait,
            (CollectiveWait{false, true, 4, 6}));
}

TEST(RankReadingsTest, AProcessThatSaysNothingIsNotResponsive) {
  using std::chrono::milliseconds;
  const MonoTime start(std::chrono::hours(1));
  MonoTime now = start;
  BeatWatch watch;
  const auto take = [&](uint64_t beat, int64_t later_ms = 500) {
    now += milliseconds(later_ms);
    return watch.Take(beat, now);
  };
  for (uint64_t beat = 7; beat < 10; ++beat) EXPECT_TRUE(take(beat));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(take(9));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(take(9)) << "for three seconds";
  EXPECT_TRUE(take(10)) << "it goes on";
  // This daemon was stopped, and perhaps the whole host.
  EXPECT_TRUE(take(10, 60'000));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(take(10));
  EXPECT_FALSE(take(10));
}

TEST(RankReadingsTest, NumbersThatCannotBeAreBounded) {
  task::RankPage page;
  page.progress.step = UINT64_MAX;
  page.progress.last_committed = INT64_MIN;
  page.has_counters = true;
  page.counters.phase_seconds[0] = std::numeric_limits<double>::quiet_NaN();
  page.counters.phase_seconds[1] = -5;
  page.counters.has_loss = true;
  page.counters.last_loss = std::numeric_limits<double>::infinity();
  page.counters.samples = UINT64_MAX;
  const RankProgress progress = ToProgress(page, 0);
  EXPECT_EQ(progress.step, int64_t{1} << 53);
  EXPECT_EQ(progress.committed_step, -1);
  EXPECT_EQ(progress.phases.input, 0);
  EXPECT_EQ(progress.phases.compute, 0);
  EXPECT_EQ(progress.loss, 0);
  EXPECT_EQ(progress.samples, int64_t{1} << 53);
}

TEST(RankReadingsTest, ExitRecordsBecomeExits) {
  task::ExitRecord record;
  record.kind = task::ExitKind::kExited;
  record.wait_status = 3 << 8;
  record.end_unix_nanos = 5;
  EXPECT_EQ(ToExitStatus(record).how, ExitStatus::How::kCode);
  EXPECT_EQ(ToExitStatus(record).value, 3);
  EXPECT_EQ(ToUnixNanos(ToExitStatus(record).end_time), 5);
  record.kind = task::ExitKind::kSignaled;
  record.wait_status = SIGKILL;
  EXPECT_EQ(ToExitStatus(record).how, ExitStatus::How::kSignal);
  EXPECT_EQ(ToExitStatus(record).value, 9);
  record.kind = task::ExitKind::kNotStarted;
  record.start_errno = ENOENT;
  record.message = "no such file";
  EXPECT_EQ(ToExitStatus(record).how, ExitStatus::How::kExecErrno);
  EXPECT_EQ(ToExitStatus(record).value, ENOENT);
  EXPECT_EQ(ToExitStatus(record).message, "no such file");
}

TEST(RankReadingsTest, FinalUseIsTheRecordsAndNeverLessThanWasSeen) {
  task::ExitRecord record;
  record.user_nanos = 1'500'000'000;
  record.system_nanos = 500'000'000;
  record.max_rss_bytes = 100;
  record.start_mono_nanos = 1'000'000'000;
  record.end_mono_nanos = 4'000'000'000;
  Usage sampled;
  sampled.memory_bytes = 70;
  sampled.memory_peak_bytes = 200;  // Of several processes together.
  sampled.gpu_utilization = 0.5;
  const Usage usage = ToUsage(record, sampled);
  EXPECT_DOUBLE_EQ(usage.cpu_seconds, 2);
  EXPECT_DOUBLE_EQ(usage.seconds, 3);
  EXPECT_EQ(usage.memory_bytes, 0);
  EXPECT_EQ(usage.memory_peak_bytes, 200);
  EXPECT_EQ(usage.gpu_utilization, 0.5);
}

TEST(RankReadingsTest, ThePeakOfCoresIsOverAPeriodAndNeverBelowTheMean) {
  using std::chrono_literals::operator""ms;
  const MonoTime start = MonoTime() + 1000ms;
  CpuPeak peak;
  EXPECT_EQ(peak.cores(), std::nullopt);
  peak.Add(start, 5);
  EXPECT_EQ(peak.cores(), std::nullopt);  // Of what was before, nothing.
  peak.Add(start + 1000ms, 7);
  EXPECT_DOUBLE_EQ(*peak.cores(), 2);
  // Too soon: it counts for the next one.
  peak.Add(start + 1100ms, 8);
  EXPECT_DOUBLE_EQ(*peak.cores(), 2);
  peak.Add(start + 2000ms, 7.5);
  EXPECT_DOUBLE_EQ(*peak.cores(), 2);
  // A child that nobody waited for takes its time away.
  peak.Add(start + 3000ms, 1);
  EXPECT_DOUBLE_EQ(*peak.cores(), 2);
  peak.Add(start + 5000ms, 9);
  EXPECT_DOUBLE_EQ(*peak.cores(), 4);

  task::ExitRecord record;
  record.user_nanos = 3'000'000'000;
  record.end_mono_nanos = 2'000'000'000;
  EXPECT_DOUBLE_EQ(*ToUsage(record, Usage()).cpu_peak_cores, 1.5);
  Usage sampled;
  sampled.cpu_peak_cores = 4;
  EXPECT_DOUBLE_EQ(*ToUsage(record, sampled).cpu_peak_cores, 4);
  record.end_mono_nanos = 0;
  EXPECT_FALSE(ToUsage(record, Usage()).cpu_peak_cores.has_value());
}

TEST(RankReadingsTest, GpusOfARankTogether) {
  GpuUsage first;
  first.index = 1;
  first.utilization = 0.5;
  first.memory_used_bytes = 100;
  GpuUsage second = first;
  second.index = 2;
  second.utilization = 1;
  GpuUsage silent;
  silent.index = 3;
  const std::vector<GpuUsage> all = {first, second, silent};
  EXPECT_DOUBLE_EQ(*UseOfGpus(all, {1, 2, 3}).utilization, 0.75);
  EXPECT_EQ(UseOfGpus(all, {1, 2, 3}).memory_bytes, 200);
  EXPECT_EQ(UseOfGpus(all, {3}).utilization, std::nullopt);
  EXPECT_EQ(UseOfGpus(all, {}).memory_bytes, std::nullopt);
}

TEST(RankReadingsTest, GpusOfferedInTheirOrder) {
  const std::vector<Gpu> offered = {{3, "GPU-d", "T4", 1},
                                    {1, "GPU-b", "T4", 1}};
  devices::GpuReading reading;
  reading.index = 1;
  reading.Set(devices::GpuValue::kUtilization, 0.5);
  reading.Set(devices::GpuValue::kMemoryUsed, 4096);
  reading.Set(devices::GpuValue::kPower, 1e9);
  const auto usage = ToGpuUsage(offered, {reading});
  ASSERT_EQ(usage.size(), 2u);
  EXPECT_EQ(usage[0].index, 3);
  EXPECT_FALSE(usage[0].utilization.has_value());
  EXPECT_EQ(usage[1].index, 1);
  EXPECT_EQ(usage[1].utilization, 0.5);
  EXPECT_EQ(usage[1].memory_used_bytes, 4096);
  EXPECT_EQ(usage[1].power_watts, 1e6);
  EXPECT_FALSE(usage[1].temperature_celsius.has_value());
}

TEST(RankReadingsTest, TheHealthOfAGpu) {
  const std::vector<Gpu> offered = {{0, "GPU-a", "T4", 1}};
  devices::GpuReading reading;
  reading.Set(devices::GpuValue::kEccUncorrectedVolatile, 3);
  reading.Set(devices::GpuValue::kRowRemapPending, 1);
  reading.Set(devices::GpuValue::kPcieLinkWidth, 8);
  reading.Set(devices::GpuValue::kPcieLinkWidthMax, 16);
  reading.Set(devices::GpuValue::kNvlinksActive, 17);
  GpuUsage usage = ToGpuUsage(offered, {reading})[0];
  EXPECT_EQ(usage.uncorrected_errors, 3);
  EXPECT_EQ(usage.remap_pending, true);
  EXPECT_FALSE(usage.remap_failed);
  EXPECT_EQ(usage.pcie_width, 8);
  EXPECT_EQ(usage.pcie_width_max, 16);
  EXPECT_EQ(usage.nvlinks, 17);
  EXPECT_EQ(usage.slowdown, "");
  // A power limit is the site's wish.
  reading.throttled.emplace();
  const auto throttle = [&](devices::GpuThrottle why) {
    (*reading.throttled)[static_cast<size_t>(why)] = true;
    return ToGpuUsage(offered, {reading})[0].slowdown;
  };
  EXPECT_EQ(throttle(devices::GpuThrottle::kPowerCap), "");
  EXPECT_EQ(throttle(devices::GpuThrottle::kSwThermal), "sw_thermal");
  EXPECT_EQ(throttle(devices::GpuThrottle::kHwThermal), "hw_thermal");
}

}  // namespace
}  // namespace lockstep::worker::agent
