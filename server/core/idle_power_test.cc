#include "server/core/idle_power.h"

#include <gtest/gtest.h>

namespace lockstep::server {
namespace {

class IdlePowerTest : public testing::Test {
 protected:
  IdlePowerTest() : gpus_(2), readings_(2) {
    for (int32_t i = 0; i < 2; ++i) {
      const auto at = static_cast<size_t>(i);
      gpus_[at].index = readings_[at].index = i;
      gpus_[at].uuid = "GPU-" + std::to_string(i);
    }
  }
  void Read(double first, double second) {
    readings_[0].power_watts = first;
    readings_[1].power_watts = second;
  }

  std::vector<Gpu> gpus_;
  std::vector<GpuUsage> readings_;
  IdlePower power_;
};

TEST_F(IdlePowerTest, ARankIsComparedWithItsFreeGpu) {
  Read(80, 60);
  power_.Take(gpus_, readings_, {});
  Read(70, 200);
  // The second is busy: that is not what it draws without a rank.
  power_.Take(gpus_, readings_, {1});
  Read(140, 90);
  for (GpuUsage& reading : readings_) reading.utilization = 0.25;
  EXPECT_EQ(power_.Now(gpus_, readings_, {0}).power_ratio, 2);
  EXPECT_EQ(power_.Now(gpus_, readings_, {1}).power_ratio, 1.5);
  const GpusNow both = power_.Now(gpus_, readings_, {0, 1});
  EXPECT_EQ(both.power_ratio, 2);
  EXPECT_EQ(both.utilization, 0.25);
}

TEST_F(IdlePowerTest, WhatWasNeverFreeIsNotKnown) {
  Read(300, 300);
  power_.Take(gpus_, readings_, {0, 1});
  EXPECT_FALSE(power_.Now(gpus_, readings_, {0, 1}).power_ratio.has_value());
  EXPECT_FALSE(power_.Now(gpus_, readings_, {0, 1}).utilization.has_value());
  readings_[0].utilization = 0.5;
  EXPECT_FALSE(power_.Now(gpus_, readings_, {0, 1}).utilization.has_value())
      << "one of the two";
  EXPECT_EQ(power_.Now(gpus_, readings_, {0}).utilization, 0.5);
  EXPECT_FALSE(power_.Now(gpus_, readings_, {7}).utilization.has_value());
}

// Another GPU may come into the slot.
TEST_F(IdlePowerTest, ItBelongsToTheGpuAndNotToItsSlot) {
  Read(50, 50);
  power_.Take(gpus_, readings_, {});
  gpus_[0].uuid = "GPU-new";
  EXPECT_FALSE(power_.Now(gpus_, readings_, {0}).power_ratio.has_value());
}

}  // namespace
}  // namespace lockstep::server
