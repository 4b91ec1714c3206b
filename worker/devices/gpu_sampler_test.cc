#include "worker/devices/gpu_sampler.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "worker/devices/fake_nvml_control.h"

namespace lockstep::worker::devices {
namespace {

using std::chrono::milliseconds;

class GpuSamplerTest : public testing::Test {
 protected:
  static GpuSamplerOptions Options() {
    GpuSamplerOptions options;
    options.library = LOCKSTEP_FAKE_NVML;
    options.period = milliseconds(10);
    // More than a busy machine keeps the sampler's thread waiting.
    options.stale_after = std::chrono::seconds(10);
    options.close_within = std::chrono::seconds(20);
    return options;
  }
  static std::unique_ptr<GpuSampler> Open(const GpuSamplerOptions& options) {
    auto sampler = GpuSampler::Open(options);
    EXPECT_TRUE(sampler.ok()) << sampler.status();
    return sampler.ok() ? *std::move(sampler) : nullptr;
  }
  static bool Eventually(const std::function<bool()>& condition) {
    const MonoTime deadline = MonotonicNow() + std::chrono::seconds(20);
    while (!condition()) {
      if (MonotonicNow() > deadline) return false;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return true;
  }

  void SetUp() override {
    library_ = dlopen(LOCKSTEP_FAKE_NVML, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    open_ = reinterpret_cast<int (*)()>(dlsym(library_, "fakeNvmlOpen"));
    ASSERT_NE(open_, nullptr);
  }
  // Never closed: a thread may be about to leave the library.

  FakeNvmlControl fake_{8, "H100"};
  void* library_ = nullptr;
  // Users of the library, those left behind too.
  int (*open_)() = nullptr;
};

TEST_F(GpuSamplerTest, EightGpusAndTheirChanges) {
  const auto sampler = Open(Options());
  ASSERT_NE(sampler, nullptr);
  EXPECT_EQ(sampler->gpus().size(), 8u);
  EXPECT_EQ(sampler->driver_version(), "535.247.01");
  ASSERT_TRUE(
      Eventually([&] { return sampler->Latest(MonotonicNow()).samples > 1; }));
  fake_.Write("set 5 utilization 12\nset 5 throttle 0x40\n");
  ASSERT_TRUE(Eventually([&] {
    const GpuStatus status = sampler->Latest(MonotonicNow());
    return status.readings.size() == 8 &&
           status.readings[5].Get(GpuValue::kUtilization) == 0.12 &&
           status.readings[5].throttled_seconds[static_cast<size_t>(
               GpuThrottle::kHwThermal)] > 0.02;
  }));
  const GpuStatus status = sampler->Latest(MonotonicNow());
  EXPECT_EQ(status.readings[4].Get(GpuValue::kUtilization), 0.75);
  EXPECT_EQ(status.readings[4].throttled_seconds[2], 0);
  // The slow readings are there between two turns too.
  for (const GpuReading& reading : status.readings) {
    EXPECT_TRUE(reading.Get(GpuValue::kPcieTransmit)) << reading.index;
  }
  EXPECT_GT(status.read_seconds, 0);
}

TEST_F(GpuSamplerTest, XidsAreCountedByNumber) {
  const auto sampler = Open(Options());
  ASSERT_NE(sampler, nullptr);
  ASSERT_TRUE(Eventually(
      [&] { return sampler->Latest(MonotonicNow()).xids.size() == 8; }));
  fake_.Write("xid 3 79\nxid 3 79\nxid 1 31\nxid 1 9999\n");
  ASSERT_TRUE(Eventually([&] {
    return sampler->Latest(MonotonicNow()).xids[1].counts[kXidClasses - 1] == 1;
  }));
  const GpuStatus status = sampler->Latest(MonotonicNow());
  EXPECT_EQ(status.xids[3].counts[XidClass(79)], 2u);
  EXPECT_EQ(status.xids[3].last(), 79u);
  EXPECT_EQ(status.xids[1].counts[XidClass(31)], 1u);
  EXPECT_EQ(status.xids[1].last(), 9999u);
  EXPECT_EQ(status.xids[0].last(), 0u);
}

TEST_F(GpuSamplerTest, AHangMakesReadingsStaleAndThenAbsent) {
  GpuSamplerOptions options = Options();
  options.stale_after = milliseconds(200);
  const auto sampler = Open(options);
  ASSERT_NE(sampler, nullptr);
  ASSERT_TRUE(Eventually(
      [&] { return !sampler->Latest(MonotonicNow()).readings.empty(); }));
  fake_.Write("hang nvmlDeviceGetPowerUsage\n");
  ASSERT_TRUE(Eventually(
      [&] { return sampler->Latest(MonotonicNow()).readings.empty(); }));
  EXPECT_GT(sampler->Latest(MonotonicNow()).age, milliseconds(200));
  // Asking takes no time, though the driver hangs.
  const MonoTime before = MonotonicNow();
  (void)sampler->Latest(MonotonicNow());
  EXPECT_LT(MonotonicNow() - before, std::chrono::seconds(5));
  fake_.Write("");
  EXPECT_TRUE(Eventually(
      [&] { return !sampler->Latest(MonotonicNow()).readings.empty(); }));
}

TEST_F(GpuSamplerTest, ADriverThatHangsDoesNotHoldUpTheEnd) {
  GpuSamplerOptions options = Options();
  options.stale_after = milliseconds(200);
  options.close_within = milliseconds(50);
  auto sampler = Open(options);
  ASSERT_NE(sampler, nullptr);
  ASSERT_TRUE(
      Eventually([&] { return sampler->Latest(MonotonicNow()).samples > 0; }));
  fake_.Write("hang all\n");
  const uint64_t samples = sampler->Latest(MonotonicNow()).samples;
  ASSERT_TRUE(Eventually([&] {
    return sampler->Latest(MonotonicNow()).readings.empty();
  })) << samples;
  const MonoTime before = MonotonicNow();
  sampler.reset();
  EXPECT_LT(MonotonicNow() - before, std::chrono::seconds(5));
  // What was left behind ends with the hang.
  EXPECT_GT(open_(), 0);
  fake_.Write("");
  EXPECT_TRUE(Eventually([&] { return open_() == 0; }));
}

TEST_F(GpuSamplerTest, ADriverThatDoesNotComeBackFromStartingIsGivenUp) {
  fake_.Write("hang nvmlInit_v2\n");
  GpuSamplerOptions options = Options();
  options.open_within = milliseconds(50);
  options.close_within = milliseconds(50);
  const auto sampler = GpuSampler::Open(options);
  EXPECT_EQ(sampler.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(OpenGpusIfThere(options), nullptr);
  EXPECT_TRUE(Eventually([&] { return open_() == 2; }));
  fake_.Write("");
  EXPECT_TRUE(Eventually([&] { return open_() == 0; }));
}

TEST_F(GpuSamplerTest, NoDriverAndNoGpusAreNoError) {
  GpuSamplerOptions options = Options();
  options.library = "libno-such-library.so.1";
  EXPECT_EQ(GpuSampler::Open(options).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(OpenGpusIfThere(options), nullptr);
  setenv("FAKE_NVML_GPUS", "0", 1);
  const auto sampler = Open(Options());
  ASSERT_NE(sampler, nullptr);
  EXPECT_TRUE(sampler->gpus().empty());
}

TEST_F(GpuSamplerTest, AnOldDriverIsRead) {
  GpuSamplerOptions options = Options();
  options.library = LOCKSTEP_FAKE_NVML_OLD;
  const auto sampler = Open(options);
  ASSERT_NE(sampler, nullptr);
  ASSERT_TRUE(Eventually(
      [&] { return sampler->Latest(MonotonicNow()).readings.size() == 8; }));
  EXPECT_TRUE(sampler->Latest(MonotonicNow()).xids.empty());
}

}  // namespace
}  // namespace lockstep::worker::devices
