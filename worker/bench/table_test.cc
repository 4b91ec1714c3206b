#include "worker/bench/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "worker/bench/options.h"

namespace lockstep::worker::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BenchRow Row() {
  BenchRow row;
  row.bytes = 1'000'000;
  row.count = 250'000;
  row.ranks = 4;
  row.out_of_place = {0.001, 0};
  row.in_place = BenchTiming{0.0005, 3};
  return row;
}

TEST(TableTest, BandwidthsAreNcclTests) {
  BenchRow row = Row();
  EXPECT_DOUBLE_EQ(AlgorithmBandwidth(row, row.out_of_place), 1);
  EXPECT_DOUBLE_EQ(BusBandwidth(row, row.out_of_place), 1.5);
  row.kind = collective::CollectiveKind::kReduceScatter;
  EXPECT_DOUBLE_EQ(BusBandwidth(row, row.out_of_place), 0.75);
  row.kind = collective::CollectiveKind::kAllGather;
  EXPECT_DOUBLE_EQ(BusBandwidth(row, row.out_of_place), 0.75);
  row.kind = collective::CollectiveKind::kBroadcast;
  EXPECT_DOUBLE_EQ(BusBandwidth(row, row.out_of_place), 1);
}

TEST(TableTest, RowsAndSummary) {
  EXPECT_EQ(TableRow(Row()),
            "      1000000       250000    float    sum     -1        1000    "
            " 1.00     1.50       0     500.0     2.00     3.00       3\n");
  EXPECT_THAT(TableFooter({Row()}), HasSubstr("values : 3 FAILED"));
  EXPECT_THAT(TableFooter({Row()}), HasSubstr("bandwidth    : 2.2500"));
  const nlohmann::json json = RowJson(Row());
  EXPECT_EQ(json["in_place"]["wrong"], 3);
  EXPECT_EQ(json["type"], "float");
  EXPECT_FALSE(json.contains("root"));
}

TEST(TableTest, AnAllToAllIsNeverInPlace) {
  BenchRow row = Row();
  row.kind = collective::CollectiveKind::kAllToAll;
  row.in_place.reset();
  EXPECT_DOUBLE_EQ(BusBandwidth(row, row.out_of_place), 0.75);
  EXPECT_THAT(TableRow(row),
              HasSubstr(" 0.75       0       N/A      N/A      N/A     N/A\n"));
  EXPECT_THAT(TableFooter({row}), HasSubstr("bandwidth    : 0.7500"));
  EXPECT_FALSE(RowJson(row).contains("in_place"));
}

TEST(OptionsTest, SizesGoByFactorOrIncrement) {
  BenchOptions options;
  options.min_bytes = 8;
  options.max_bytes = 100;
  options.factor = 2;
  EXPECT_THAT(SizesOf(options), ElementsAre(8, 16, 32, 64));
  options.increment = 40;
  EXPECT_THAT(SizesOf(options), ElementsAre(8, 48, 88));
  options.min_bytes = 0;
  options.max_bytes = 0;
  EXPECT_THAT(SizesOf(options), ElementsAre(1));
}

}  // namespace
}  // namespace lockstep::worker::bench
