#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <memory>

#include "worker/devices/fake_nvml_control.h"
#include "worker/devices/host_capacity.h"
#include "worker/devices/nvml.h"

namespace lockstep::worker::devices {
namespace {

class NvmlTest : public testing::Test {
 protected:
  static std::unique_ptr<Nvml> Open(
      const std::string& library = LOCKSTEP_FAKE_NVML) {
    auto nvml = Nvml::Open(library);
    EXPECT_TRUE(nvml.ok()) << nvml.status();
    return nvml.ok() ? *std::move(nvml) : nullptr;
  }

  // So that it has what is measured between two readings.
  static GpuReading ReadTwice(const Nvml& nvml, size_t i) {
    const MonoTime deadline = MonotonicNow() + std::chrono::seconds(30);
    for (;;) {
      GpuReading reading = nvml.Read(i, /*slow=*/true);
      if (reading.Get(GpuValue::kSmActivity)) return reading;
      if (MonotonicNow() > deadline) return reading;
    }
  }

  FakeNvmlControl fake_{2, "H100"};
};

TEST_F(NvmlTest, AHostWithoutDriverHasNoGpus) {
  EXPECT_EQ(Nvml::Open("libno-such-library.so.1").status().code(),
            StatusCode::kNotFound);
}

TEST_F(NvmlTest, GpusHaveModelUuidMemoryAndPlace) {
  const auto nvml = Open();
  ASSERT_NE(nvml, nullptr);
  ASSERT_EQ(nvml->gpus().size(), 2u);
  EXPECT_EQ(nvml->gpus()[1],
            (Gpu{1, "GPU-2", "NVIDIA H100 80GB HBM3", int64_t{80} << 30}));
  EXPECT_EQ(nvml->places()[1].pci_bus_id, "00000000:11:00.0");
  EXPECT_EQ(nvml->places()[1].minor, 1);
  EXPECT_EQ(nvml->driver_version(), "535.247.01");
}

TEST_F(NvmlTest, EveryReadingIsInBaseUnits) {
  fake_.Write(
      "set 0 throttle 0x24\nset 0 ecc_uncorrected_aggregate 3\n"
      "set 0 remap_failure 1\nset all nvlink_replay 7\n"
      "set 1 temperature 91\n");
  const auto nvml = Open();
  ASSERT_NE(nvml, nullptr);
  const GpuReading reading = ReadTwice(*nvml, 0);
  const std::map<GpuValue, double> expected = {
      {GpuValue::kUtilization, 0.75},
      {GpuValue::kMemoryAccess, 0.30},
      {GpuValue::kSmActivity, 0.61},
      {GpuValue::kTensorActivity, 0.42},
      {GpuValue::kMemoryActivity, 0.25},
      {GpuValue::kMemoryUsed, 4.0 * (1u << 30)},
      {GpuValue::kMemoryReserved, 512.0 * (1u << 20)},
      {GpuValue::kMemoryFree, 75.5 * (1u << 30)},
      {GpuValue::kMemoryTotal, 80.0 * (1u << 30)},
      {GpuValue::kPower, 70.5},
      {GpuValue::kPowerLimit, 300},
      {GpuValue::kEnergy, 1000},
      {GpuValue::kTemperatureCore, 55},
      {GpuValue::kTemperatureMemory, 60},
      {GpuValue::kClockSm, 1.5e9},
      {GpuValue::kClockMemory, 1.2e9},
      {GpuValue::kClockMaxSm, 1.98e9},
      {GpuValue::kClockMaxMemory, 2.619e9},
      {GpuValue::kPcieTransmit, 1000 * 1024},
      {GpuValue::kPcieReceive, 2000 * 1024},
      {GpuValue::kPcieReplays, 0},
      {GpuValue::kPcieLinkGeneration, 4},
      {GpuValue::kPcieLinkWidth, 16},
      {GpuValue::kPcieLinkWidthMax, 16},
      {GpuValue::kNvlinkTransmit, 5000 * 1024},
      {GpuValue::kNvlinkReceive, 6000 * 1024},
      {GpuValue::kNvlinkCrcFlitErrors, 0},
      {GpuValue::kNvlinkCrcDataErrors, 0},
      {GpuValue::kNvlinkReplays, 7},
      {GpuValue::kNvlinkRecoveries, 0},
      {GpuValue::kNvlinksActive, 18},
      {GpuValue::kEccCorrectedVolatile, 0},
      {GpuValue::kEccUncorrectedVolatile, 0},
      {GpuValue::kEccCorrectedAggregate, 0},
      {GpuValue::kEccUncorrectedAggregate, 3},
      {GpuValue::kRowsRemappedCorrected, 0},
      {GpuValue::kRowsRemappedUncorrected, 0},
      {GpuValue::kRowRemapPending, 0},
      {GpuValue::kRowRemapFailure, 1},
  };
  ASSERT_EQ(expected.size(), kGpuValues);
  for (const auto& [value, number] : expected) {
    ASSERT_TRUE(reading.Get(value)) << static_cast<int>(value);
    EXPECT_DOUBLE_EQ(*reading.Get(value), number) << static_cast<int>(value);
  }
  ASSERT_TRUE(reading.throttled);
  EXPECT_EQ(*reading.throttled, (std::array<bool, kGpuThrottles>{
                                    true, true, false, false, false, false}));
  EXPECT_EQ(nvml->Read(1, true).Get(GpuValue::kTemperatureCore), 91);
  // The slow ones only when asked for.
  EXPECT_FALSE(nvml->Read(0, false).Get(GpuValue::kPcieTransmit));
}

TEST_F(NvmlTest, ActivityIsMeasuredBetweenReadings) {
  fake_.Write("set 1 sm_activity 250\n");
  const auto nvml = Open();
  ASSERT_NE(nvml, nullptr);
  EXPECT_FALSE(nvml->Read(0, false).Get(GpuValue::kSmActivity)) << "the first";
  EXPECT_EQ(ReadTwice(*nvml, 0).Get(GpuValue::kSmActivity), 0.61);
  EXPECT_EQ(ReadTwice(*nvml, 1).Get(GpuValue::kSmActivity), 1.0);
  // A reading right after another has the last values.
  fake_.Write("set all tensor_activity 7\n");
  const MonoTime begun = MonotonicNow();
  const auto soon = nvml->Read(1, false).Get(GpuValue::kTensorActivity);
  if (MonotonicNow() - begun < std::chrono::milliseconds(50)) {
    EXPECT_EQ(soon, 0.42);
  }
  // A driver that no longer answers says nothing, and then begins again.
  fake_.Write("unsupported nvmlGpmSampleGet\n");
  const MonoTime deadline = MonotonicNow() + std::chrono::seconds(30);
  while (nvml->Read(0, false).Get(GpuValue::kSmActivity)) {
    ASSERT_LT(MonotonicNow(), deadline);
  }
  fake_.Write("");
  EXPECT_FALSE(nvml->Read(0, false).Get(GpuValue::kSmActivity));
  EXPECT_EQ(ReadTwice(*nvml, 0).Get(GpuValue::kSmActivity), 0.61);
}

TEST_F(NvmlTest, OlderGpusMeasureNoActivity) {
  setenv("FAKE_NVML_MODEL", "V100", 1);
  const auto nvml = Open();
  ASSERT_NE(nvml, nullptr);
  (void)nvml->Read(0, true);
  EXPECT_FALSE(nvml->Read(0, true).Get(GpuValue::kSmActivity));
  setenv("FAKE_NVML_MODEL", "H100", 1);
  fake_.Write("unsupported nvmlGpmQueryDeviceSupport\n");
  const auto hidden = Open();
  ASSERT_NE(hidden, nullptr);
  EXPECT_TRUE(hidden->Read(0, true).up);
}

TEST_F(NvmlTest, ComputeProcessesOfAGpu) {
  fake_.Write(
      "process 0 4711 1000\nprocess 1 5 7\n"
      "process 0 4712 0xffffffffffffffff\nprocess 0 0 1\n");
  const auto nvml = Open();
  ASSERT_NE(nvml, nullptr);
  const auto processes = nvml->Read(0, false).processes;
  ASSERT_TRUE(processes);
  EXPECT_EQ(*processes,
            (std::vector<GpuProcess>{{4711, 1000}, {4712, std::nullopt}}));
  // More than there is room for are not known.
  std::string many;
  for (size_t i = 0; i <= kMaxGpuProcesses; ++i) many += "process 0 9 1\n";
  fake_.Write(many);
  EXPECT_FALSE(nvml->Read(0, false).processes);
  fake_.Write("unsupported nvmlDeviceGetComputeRunningProcesses_v2\n");
  EXPECT_FALSE(nvml->Read(0, false).processes);
}

TEST_F(NvmlTest, RatiosAreBounded) {
  fake_.Write("set 0 memory_access 300\n");
  const auto nvml = Open();
  ASSERT_NE(nvml, nullptr);
  EXPECT_EQ(nvml->Read(0, true).Get(GpuValue::kMemoryAccess), 1.0);
}

TEST_F(NvmlTest, WhatAGpuDoesNotSupportIsAbsent) {
  setenv("FAKE_NVML_MODEL", "T4", 1);
  fake_.Write(
      "unsupported nvmlDeviceGetTotalEccErrors\n"
      "unsupported nvmlDeviceGetMemoryInfo_v2\n");
  const auto nvml = Open();
  ASSERT_NE(nvml, nullptr);
  const GpuReading reading = nvml->Read(0, true);
  EXPECT_TRUE(reading.up);
  EXPECT_FALSE(reading.Get(GpuValue::kTemperatureMemory));  // It says 0 there.
  EXPECT_FALSE(reading.Get(GpuValue::kNvlinkTransmit));
  EXPECT_FALSE(reading.Get(GpuValue::kRowRemapFailure));
  EXPECT_FALSE(reading.Get(GpuValue::kEccCorrectedVolatile));
  EXPECT_FALSE(reading.Get(GpuValue::kMemoryReserved));
  EXPECT_EQ(reading.Get(GpuValue::kMemoryFree), 12.0 * (1u << 30));
  EXPECT_EQ(reading.Get(GpuValue::kUtilization), 0.75);
}

TEST_F(NvmlTest, AnOldDriversMissingFunctionsLeaveReadingsOut) {
  const auto nvml = Open(LOCKSTEP_FAKE_NVML_OLD);
  ASSERT_NE(nvml, nullptr);
  ASSERT_EQ(nvml->gpus().size(), 2u);
  EXPECT_EQ(nvml->driver_version(), "");
  EXPECT_EQ(nvml->places()[0].minor, -1);
  const GpuReading reading = nvml->Read(0, true);
  EXPECT_EQ(reading.Get(GpuValue::kUtilization), 0.75);
  EXPECT_EQ(std::count_if(reading.values.begin(), reading.values.end(),
                          [](const auto& value) { return value.has_value(); }),
            5);  // Two ratios, memory used, free and total.
  EXPECT_FALSE(reading.throttled);
  EXPECT_EQ(nvml->OpenEvents().code(), StatusCode::kUnavailable);
}

TEST_F(NvmlTest, ALostGpuIsLeftOutAtTheStartAndDownLater) {
  fake_.Write("lost 0\n");
  {
    const auto nvml = Open();
    ASSERT_NE(nvml, nullptr);
    ASSERT_EQ(nvml->gpus().size(), 1u);
    EXPECT_EQ(nvml->gpus()[0].index, 1);
  }
  fake_.Write("");
  const auto nvml = Open();
  ASSERT_NE(nvml, nullptr);
  fake_.Write("lost 1\n");
  EXPECT_TRUE(nvml->Read(0, true).up);
  const GpuReading reading = nvml->Read(1, true);
  EXPECT_FALSE(reading.up);
  EXPECT_EQ(reading.error, "GPU is lost");
  EXPECT_FALSE(reading.Get(GpuValue::kUtilization));
}

TEST_F(NvmlTest, ADriverThatDoesNotAnswerIsNamed) {
  setenv("FAKE_NVML_FAIL", "1", 1);
  const auto nvml = Nvml::Open(LOCKSTEP_FAKE_NVML);
  EXPECT_EQ(nvml.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(Message(nvml.status()).find("Driver Not Loaded"),
            std::string::npos);
}

TEST_F(NvmlTest, ALibraryThatIsNoneOfNvmlIsRefused) {
  EXPECT_EQ(Nvml::Open("libc.so.6").status().code(), StatusCode::kUnavailable);
}

TEST(XidTest, ClassesAreClosed) {
  EXPECT_EQ(XidClassName(XidClass(79)), "79");
  EXPECT_EQ(XidClassName(XidClass(7777)), "other");
  EXPECT_EQ(XidClass(1), kXidClasses - 1);
}

TEST(XidTest, TheNewestAreKnownInOrder) {
  GpuXids xids;
  for (uint64_t xid = 100; xid < 140; ++xid) xids.Add(xid);
  EXPECT_EQ(xids.total, 40u);
  EXPECT_EQ(xids.newest[39 % GpuXids::kNewest], 139u);
  EXPECT_EQ(xids.newest[8 % GpuXids::kNewest], 108u);
  EXPECT_EQ(xids.counts[XidClass(119)], 1u);
}

TEST(SelectGpusTest, ByCountAndByWhatTheDaemonMaySee) {
  const std::vector<Gpu> gpus = {
      {0, "GPU-a", "T4", 1}, {1, "GPU-b", "T4", 1}, {2, "GPU-c", "T4", 1}};
  EXPECT_EQ(SelectGpus(gpus, std::nullopt, std::nullopt).size(), 3u);
  EXPECT_EQ(SelectGpus(gpus, std::nullopt, 0).size(), 0u);
  const auto some = SelectGpus(gpus, "2,GPU-a", std::nullopt);
  ASSERT_EQ(some.size(), 2u);
  EXPECT_EQ(some[0].index, 2);
  EXPECT_EQ(some[1].index, 0);
  EXPECT_EQ(SelectGpus(gpus, "2,GPU-a", 1).size(), 1u);
  EXPECT_EQ(SelectGpus(gpus, "", std::nullopt).size(), 0u);
  EXPECT_EQ(SelectGpus(gpus, "1,9,0", std::nullopt).size(), 1u);
}

TEST(HostCapacityTest, LimitsOfCgroups) {
  EXPECT_DOUBLE_EQ(ParseCpuMax("150000 100000\n").value(), 1.5);
  EXPECT_FALSE(ParseCpuMax("max 100000\n").has_value());
  EXPECT_FALSE(ParseCpuMax("").has_value());
  EXPECT_FALSE(ParseCpuMax("-1 100000\n").has_value());
  EXPECT_FALSE(ParseCpuMax("100000").has_value());
  EXPECT_EQ(ParseMemoryMax("1073741824\n").value(), 1073741824);
  EXPECT_FALSE(ParseMemoryMax("max\n").has_value());
}

TEST(HostCapacityTest, ThisHostHasSome) {
  const auto capacity = ReadHostCapacity();
  ASSERT_TRUE(capacity.ok()) << capacity.status();
  EXPECT_GT(capacity->cpus, 0);
  EXPECT_GT(capacity->memory_bytes, 1 << 20);
}

}  // namespace
}  // namespace lockstep::worker::devices
