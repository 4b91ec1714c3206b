#include <gtest/gtest.h>
#include <stdlib.h>

#include "worker/devices/host_capacity.h"
#include "worker/devices/nvml.h"

namespace lockstep {
namespace {

class NvmlTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("FAKE_NVML_GPUS", "2", 1);
    unsetenv("FAKE_NVML_FAIL");
  }
};

TEST_F(NvmlTest, AHostWithoutDriverHasNoGpus) {
  EXPECT_EQ(Nvml::Open("libno-such-library.so.1").status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(OpenNvmlIfThere("libno-such-library.so.1"), nullptr);
}

TEST_F(NvmlTest, GpusHaveModelUuidAndMemory) {
  const auto nvml = Nvml::Open(LOCKSTEP_FAKE_NVML);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  ASSERT_EQ((*nvml)->gpus().size(), 2u);
  EXPECT_EQ((*nvml)->gpus()[1],
            (Gpu{1, "GPU-2", "Tesla T4", int64_t{16} << 30}));
}

TEST_F(NvmlTest, ReadingsAreInBaseUnitsAndBounded) {
  const auto nvml = Nvml::Open(LOCKSTEP_FAKE_NVML);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const auto readings = (*nvml)->Read();
  ASSERT_EQ(readings.size(), 2u);
  EXPECT_DOUBLE_EQ(readings[0].utilization.value(), 0.75);
  EXPECT_DOUBLE_EQ(readings[0].memory_access.value(), 1.0);  // It said 300 %.
  EXPECT_DOUBLE_EQ(readings[0].power_watts.value(), 70.5);
  EXPECT_EQ(readings[0].memory_used_bytes, int64_t{4} << 30);
  EXPECT_FALSE(readings[0].temperature_celsius.has_value());
}

TEST_F(NvmlTest, ADriverThatDoesNotAnswerIsNamed) {
  setenv("FAKE_NVML_FAIL", "1", 1);
  const auto nvml = Nvml::Open(LOCKSTEP_FAKE_NVML);
  EXPECT_EQ(nvml.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(Message(nvml.status()).find("Driver Not Loaded"),
            std::string::npos);
  EXPECT_EQ(OpenNvmlIfThere(LOCKSTEP_FAKE_NVML), nullptr);
}

TEST_F(NvmlTest, ALibraryThatIsNoneOfNvmlIsRefused) {
  EXPECT_EQ(Nvml::Open("libc.so.6").status().code(), StatusCode::kUnavailable);
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
}  // namespace lockstep
