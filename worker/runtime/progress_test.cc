#include "worker/runtime/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace lockstep {
namespace {

TEST(ProgressTest, ValuesKeepTheirNamesAndStayFinite) {
  auto progress = *Progress::Create("", 0, 1);
  progress->SetValue("accuracy", 0.5);
  progress->SetValue("accuracy", 0.9);
  progress->SetValue("accuracy", std::nan(""));
  ASSERT_EQ(progress->counters().values.size(), 1u);
  EXPECT_EQ(progress->counters().values[0].second, 0.9);
  for (int i = 0; i < 40; ++i) progress->SetValue(std::to_string(i), i);
  EXPECT_EQ(progress->counters().values.size(), task::kMaxReportedValues);
}

}  // namespace
}  // namespace lockstep
