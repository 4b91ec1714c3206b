#include "server/history/history_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/history/history_test_util.h"

namespace lockstep::server {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

StoredHistory Stored() {
  StoredHistory stored;
  stored.job = "train";
  stored.uid = "1f";
  stored.owner = "user/\"ann\"";
  PlotBuilder builder(kBegin, kBegin + seconds(4), 4);
  const auto at = [&](int second) {
    return builder.BinsOf(kBegin + seconds(second), seconds(1));
  };
  builder.Add(at(0), JobSeries::kLoss, 2.5);
  builder.Add(at(3), JobSeries::kLoss, 0.125);
  builder.Add(at(1), "val \"x\"\n", 7);
  builder.Add(at(2), 3, RankSeries::kGpu, 0.5);
  builder.AddCheckpoint(kBegin + seconds(2));
  stored.plot = builder.Take();
  return stored;
}

TEST(HistoryCodecTest, AFileHasWhatWasStored) {
  const StoredHistory stored = Stored();
  const std::string text = EncodeHistory(stored);
  const auto read = DecodeHistory(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->owner, stored.owner);
  EXPECT_EQ(read->plot.start, kBegin);
  EXPECT_EQ(read->plot.step, seconds(1));
  EXPECT_EQ(read->plot.Of(JobSeries::kLoss)[0], 2.5F);
  EXPECT_FALSE(IsKnown(read->plot.Of(JobSeries::kLoss)[1]));
  EXPECT_EQ(read->plot.values.at("val \"x\"\n")[1], 7);
  EXPECT_EQ(read->plot.ranks.at(3)[1][2], 0.5F);
  EXPECT_THAT(read->plot.checkpoints,
              testing::ElementsAre(kBegin + seconds(2)));
  EXPECT_EQ(EncodeHistory(*read), text);
}

TEST(HistoryCodecTest, ADamagedFileIsRefusedWithASentence) {
  const std::string text = EncodeHistory(Stored());
  // Every shorter file, as a crash in another file system would leave it.
  for (size_t size = 0; size + 2 < text.size(); ++size) {
    EXPECT_FALSE(DecodeHistory(text.substr(0, size)).ok()) << size;
  }
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return Message(DecodeHistory(changed).status());
  };
  EXPECT_THAT(with("\"format\":1", "\"format\":2"), HasSubstr("format"));
  EXPECT_THAT(with("\"points\":4", "\"points\":5"), HasSubstr("loss"));
  EXPECT_THAT(with("\"points\":4", "\"points\":4000000000"),
              HasSubstr("points"));
  EXPECT_THAT(with("\"3\":{", "\"999\":{"), HasSubstr("ranks"));
  EXPECT_THAT(with("[2.5,", "[\"x\","), HasSubstr("loss"));
  EXPECT_THAT(with("\"step_nanos\":1000000000", "\"step_nanos\":0"),
              HasSubstr("step_nanos"));
}

TEST(HistoryCodecTest, TheLargestFileKeepsItsBound) {
  StoredHistory stored;
  stored.job = std::string(63, 'x');
  stored.uid = stored.owner = std::string(64, 'y');
  PlotBuilder builder(kBegin, kBegin + seconds(kMaxStoredPoints),
                      kMaxStoredPoints);
  for (size_t i = 0; i < kMaxStoredPoints; ++i) {
    const auto bins =
        builder.BinsOf(kBegin + seconds(static_cast<int64_t>(i)), seconds(1));
    const float value = -1.23456e-12F;
    for (size_t s = 0; s < kJobSeries; ++s) {
      builder.Add(bins, static_cast<JobSeries>(s), value);
    }
    for (size_t v = 0; v < kMaxValuesInHistory; ++v) {
      builder.Add(bins, fmt::format("{:0>63}", v), value);
    }
    // Of ranks all are positive and of few digits.
    for (int32_t rank = 0; rank < kMaxRanksInHistory; ++rank) {
      for (size_t s = 0; s < kRankSeries; ++s) {
        builder.Add(bins, rank, static_cast<RankSeries>(s), 1.23456e12F);
      }
    }
  }
  stored.plot = builder.Take();
  EXPECT_LE(EncodeHistory(stored).size(), kMaxHistoryFile);
}

TEST(HistoryCodecTest, SpansAreAlignedAndSmall) {
  for (const Duration life :
       {Duration(seconds(1)), Duration(seconds(299)), Duration(minutes(7)),
        Duration(hours(3)), Duration(hours(24)), Duration(hours(24 * 90))}) {
    const WallTime from = kBegin + std::chrono::milliseconds(1234);
    const StoredSpan span = SpanOf(from, from + life);
    const Duration step =
        (span.to - span.from) / static_cast<int64_t>(span.points);
    EXPECT_LE(span.points, kMaxStoredPoints);
    EXPECT_LE(span.from, from);
    EXPECT_GE(span.to, from + life);
    EXPECT_EQ(span.from.time_since_epoch() % step, Duration{});
  }
  const StoredSpan day = SpanOf(kBegin, kBegin + hours(24));
  EXPECT_EQ((day.to - day.from) / static_cast<int64_t>(day.points), minutes(5));
}

}  // namespace
}  // namespace lockstep::server
