#include "server/logs/log_tail.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace lockstep::server {
namespace {

using testing::ElementsAre;

class LogTailTest : public testing::Test {
 protected:
  LogTailTest() {
    std::string dir = "/tmp/log-tail-XXXXXX";
    EXPECT_NE(::mkdtemp(dir.data()), nullptr);
    dir_ = dir;
    EXPECT_EQ(::mkdir((dir_ + "/uid").c_str(), 0700), 0);
    logs_ = std::make_unique<LogStore>(RealFileSystem(), dir_);
  }
  ~LogTailTest() override {
    logs_.reset();
    RealFileSystem()->RemoveAll(dir_).IgnoreError();
  }

  void Write(int32_t rank, const std::string& text) {
    std::ofstream(dir_ + "/uid/g1-r" + std::to_string(rank) + ".log") << text;
  }
  static std::string Line(int second, const std::string& text,
                          const std::string& stream = "stdout",
                          const std::string& tag = "F") {
    return fmt::format("2026-01-01T00:00:{:02}.000000000Z {} {} {}\n", second,
                       stream, tag, text);
  }
  StatusOr<LogTail> Read(int32_t ranks, const TailLimits& limits = {}) {
    std::vector<LogKey> keys;
    for (int32_t rank = 0; rank < ranks; ++rank)
      keys.push_back({"uid", 1, rank});
    return ReadTail(
        logs_.get(), keys, [](const TailLine&) { return true; }, limits);
  }
  static std::vector<std::string> TextsOf(const LogTail& tail) {
    std::vector<std::string> texts;
    for (const TailLine& line : tail.lines) texts.push_back(line.text);
    return texts;
  }

  std::string dir_;
  std::unique_ptr<LogStore> logs_;
};

TEST_F(LogTailTest, LinesOfRanksAreMergedByTime) {
  Write(0, Line(1, "a") + Line(3, "c") +
               "2026-01-01T00:00:04.000000000Z "
               "stdout P unfinis");
  Write(1, Line(2, "b") + Line(2, "hed", "stderr", "P") +
               Line(5, " part", "stderr"));
  const auto tail = Read(3);
  ASSERT_TRUE(tail.ok()) << tail.status();
  EXPECT_THAT(TextsOf(*tail),
              ElementsAre("a", "b", "c", "unfinis", "hed part"));
  EXPECT_FALSE(tail->cut);
  EXPECT_TRUE(tail->lines.back().is_stderr);
}

TEST_F(LogTailTest, OnlyTheEndOfALargeLogIsRead) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += Line(1, fmt::format("line {}", i));
  Write(0, text);
  const auto tail = Read(1, {.lines = 100'000, .bytes = 1 << 16});
  ASSERT_TRUE(tail.ok()) << tail.status();
  EXPECT_TRUE(tail->cut);
  EXPECT_LT(tail->lines.size(), 2000U);
  EXPECT_EQ(tail->lines.back().text, "line 99999");
  for (const TailLine& line : tail->lines) {
    ASSERT_THAT(line.text, testing::StartsWith("line "));
  }
}

TEST_F(LogTailTest, TheNewestLinesAreKeptAndLongOnesCut) {
  Write(0, Line(1, "a") + Line(2, "b") + Line(3, std::string(5000, 'x')));
  const auto tail = Read(1, {.lines = 2, .line_bytes = 100});
  ASSERT_TRUE(tail.ok());
  EXPECT_TRUE(tail->cut);
  ASSERT_EQ(tail->lines.size(), 2U);
  EXPECT_EQ(tail->lines[0].text, "b");
  EXPECT_EQ(tail->lines[1].text.size(), 100U);
}

// More ranks than the bytes allow: the first ones, and it is said.
TEST_F(LogTailTest, ManyRanksAreBounded) {
  for (int32_t rank = 0; rank < 20; ++rank) {
    std::string text;
    for (int i = 0; i < 1000; ++i) text += Line(1, "0123456789");
    Write(rank, text);
  }
  const auto tail = Read(20, {.lines = 100'000, .bytes = 64 << 10});
  ASSERT_TRUE(tail.ok());
  EXPECT_TRUE(tail->cut);
  EXPECT_LT(tail->lines.size(), 2000U);
}

TEST_F(LogTailTest, AJobWithoutLogsHasNone) {
  const auto tail = Read(2);
  ASSERT_TRUE(tail.ok()) << tail.status();
  EXPECT_TRUE(tail->lines.empty());
}

}  // namespace
}  // namespace lockstep::server
