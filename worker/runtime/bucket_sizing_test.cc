#include "worker/runtime/bucket_sizing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "worker/runtime/testing.h"

namespace lockstep::worker::runtime {
namespace {

constexpr size_t kMiB = 1 << 20;

TEST(BucketBytesTest, TheFixedCostIsASmallPart) {
  // 60 us and 0.5 ms a MiB: 3 % of 4 MiB's 2.06 ms.
  EXPECT_EQ(BucketBytesFor({60e-6, 0.5e-3 / kMiB}), 4 * kMiB);
  for (const double fixed : {1e-6, 5e-6, 60e-6, 200e-6}) {
    for (const double mib : {30e-6, 0.3e-3, 4e-3}) {
      const size_t bytes = BucketBytesFor({fixed, mib / kMiB});
      EXPECT_EQ(bytes % kMiB, 0u);
      const auto share = [&](size_t n) {
        return fixed / (fixed + static_cast<double>(n) * mib / kMiB);
      };
      if (bytes < 25 * kMiB) {
        EXPECT_LE(share(bytes), kFixedShare * 1.0001);
      }
      if (bytes > kMiB) {
        EXPECT_GT(share(bytes - kMiB), kFixedShare);
      }
    }
  }
}

TEST(BucketBytesTest, StaysWithinBoundsWhateverWasMeasured) {
  EXPECT_EQ(BucketBytesFor({1e-6, 10e-3 / kMiB}), kMiB);
  EXPECT_EQ(BucketBytesFor({50e-3, 0.1e-3 / kMiB}), 25 * kMiB);
  EXPECT_EQ(BucketBytesFor({1e-3, 0}), kMiB);
  EXPECT_EQ(BucketBytesFor({0, 0}), kMiB);
  EXPECT_EQ(BucketBytesFor({-1, 1}), kMiB);
  EXPECT_EQ(BucketBytesFor({std::nan(""), 1}), kMiB);
  EXPECT_EQ(BucketBytesFor({1, std::numeric_limits<double>::denorm_min()}),
            kMiB);
}

TEST(BucketBytesTest, IsSaidInUnitsOfPeople) {
  EXPECT_EQ(Describe({60e-6, 0.5e-3 / kMiB}),
            "one message costs 60 us, a MiB 0.5 ms");
  EXPECT_EQ(Describe({2.5e-3, 1.2 / kMiB}),
            "one message costs 2.5 ms, a MiB 1.2 s");
}

TEST(MeasureMessagesTest, AllRanksEndWithTheSame) {
  FakeGroup group(3);
  std::vector<MessageCost> costs(3);
  RunRanks(3, [&](int r) {
    const auto communicator = group.Make(r);
    const auto progress = *Progress::Create("", r, 1);
    SmallCollectives small(communicator.get(), progress.get(),
                           std::chrono::seconds(10));
    const auto cost = MeasureMessages(
        communicator.get(), &small, std::chrono::milliseconds(r == 0 ? 50 : 0),
        std::chrono::seconds(10));
    ASSERT_TRUE(cost.ok()) << cost.status();
    costs[r] = *cost;
  });
  EXPECT_GT(costs[0].fixed_seconds, 0);
  EXPECT_GT(costs[0].seconds_per_byte, 0);
  for (int r = 1; r < 3; ++r) {
    EXPECT_EQ(costs[r].fixed_seconds, costs[0].fixed_seconds);
    EXPECT_EQ(costs[r].seconds_per_byte, costs[0].seconds_per_byte);
  }
}

}  // namespace
}  // namespace lockstep::worker::runtime
