// The program as it is called, and what it measures here.
#include "tests/bench/model/model_main.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/bench/model/measure.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

int Call(std::vector<std::string> words) {
  words.insert(words.begin(), "step_model");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return RunModel(static_cast<int>(argv.size()), argv.data());
}

TEST(ModelMainTest, PrintsATableOrJsonOrWhatIsWrong) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Call({"--hosts", "1,8,64,512"}), 0);
  const std::string table = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(table, HasSubstr("4096"));
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Call({"--json"}), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("\"prediction\": \"alpha-beta\""));
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Call({"--help"}), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("--measure"));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Call({"--hosts", "none"}), 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("--hosts"));
}

TEST(MeasureTest, FindsThatSharedMemoryAnswersSoonerThanTcp) {
  const auto shm = model::MeasureLink("shm");
  const auto tcp = model::MeasureLink("tcp");
  ASSERT_TRUE(shm.ok()) << shm.status();
  ASSERT_TRUE(tcp.ok()) << tcp.status();
  EXPECT_GT(shm->alpha, 0);
  EXPECT_GT(shm->beta, 0);
  EXPECT_LT(tcp->beta, 1e-6) << "less than 1 MB/s";
  EXPECT_FALSE(model::MeasureLink("nccl").ok());
}

}  // namespace
}  // namespace lockstep
