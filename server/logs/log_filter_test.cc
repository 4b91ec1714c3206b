#include "server/logs/log_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::server {
namespace {

using ::testing::HasSubstr;

TEST(LogFilterTest, AllByDefault) {
  const auto filter = LogFilter::Make({});
  ASSERT_TRUE(filter.ok());
  EXPECT_TRUE(filter->Wants(INT64_MIN, Severity::kDebug, ""));
  EXPECT_TRUE(filter->Wants(INT64_MAX, Severity::kCritical, "\xff"));
}

TEST(LogFilterTest, TimesAreInclusive) {
  LogSelection selection;
  selection.since = 10;
  selection.until = 20;
  const auto filter = LogFilter::Make(selection);
  ASSERT_TRUE(filter.ok());
  for (const auto& [time, wanted] :
       std::initializer_list<std::pair<int64_t, bool>>{
           {9, false}, {10, true}, {20, true}, {21, false}}) {
    EXPECT_EQ(filter->Wants(time, Severity::kInfo, "x"), wanted) << time;
  }
}

TEST(LogFilterTest, SeverityAndPattern) {
  LogSelection selection;
  selection.min_severity = Severity::kWarning;
  selection.grep = "(?i)loss=[0-9.]+";
  const auto filter = LogFilter::Make(selection);
  ASSERT_TRUE(filter.ok());
  EXPECT_TRUE(filter->Wants(0, Severity::kWarning, "step 3 LOSS=0.5"));
  EXPECT_TRUE(filter->Wants(0, Severity::kError, "\xff loss=1"));
  EXPECT_FALSE(filter->Wants(0, Severity::kInfo, "loss=0.5"));
  EXPECT_FALSE(filter->Wants(0, Severity::kError, "loss 0.5"));
}

TEST(LogFilterTest, PatternsThatAreNone) {
  LogSelection selection;
  selection.grep = "loss(";
  EXPECT_THAT(Message(LogFilter::Make(selection).status()),
              HasSubstr("\"loss(\" is not a valid RE2 expression"));
  selection.grep = "(x{1000}){1000}";
  EXPECT_FALSE(LogFilter::Make(selection).ok());
  selection.grep = std::string(5000, 'x');
  EXPECT_THAT(Message(LogFilter::Make(selection).status()),
              HasSubstr("at most 4096 bytes"));
}

TEST(LogFilterTest, OnlyTheBeginningOfALongLineIsMatched) {
  LogSelection selection;
  selection.grep = "end";
  const auto filter = LogFilter::Make(selection);
  ASSERT_TRUE(filter.ok());
  const std::string within(kMaxMatchedBytes - 3, 'x');
  EXPECT_TRUE(filter->Wants(0, Severity::kInfo, within + "end"));
  EXPECT_FALSE(filter->Wants(0, Severity::kInfo, within + "xend"));
}

// Backtracking would take for ever.
TEST(LogFilterTest, EvilPatternIsLinear) {
  LogSelection selection;
  selection.grep = "(x+x+)+y";
  const auto filter = LogFilter::Make(selection);
  ASSERT_TRUE(filter.ok());
  EXPECT_FALSE(filter->Wants(0, Severity::kInfo, std::string(1 << 20, 'x')));
}

}  // namespace
}  // namespace lockstep::server
