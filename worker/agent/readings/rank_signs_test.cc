#include "worker/agent/readings/rank_signs.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "common/base/log_line.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

// A rank whose log the test writes.
class RankSignsTest : public testing::Test {
 protected:
  RankSignsTest() {
    char path[] = "/tmp/lockstep_rank_signs_XXXXXX";
    const char* const made = mkdtemp(path);
    directory_ = made == nullptr ? "" : made;
    options_.log_path = directory_ + "/log";
    options_.first_sign = std::chrono::minutes(10);
  }
  ~RankSignsTest() override {
    std::remove(options_.log_path.c_str());
    std::remove(directory_.c_str());
  }

  void Print(const std::string& text) {
    cri::LogLine line;
    line.text = text;
    std::string encoded;
    cri::AppendLogLine(line, &encoded);
    std::ofstream(options_.log_path, std::ios::app) << encoded;
  }
  ProgressSigns Look(RankSigns* signs) {
    now_ += 1s;
    signs->Look(now_);
    signs->ReadLog(now_);
    return signs->Signs(now_);
  }
  static RankProgress Page(int64_t step, const std::string& phase) {
    RankProgress page;
    page.step = step;
    page.committed_step = step - 1;
    page.phase = phase;
    return page;
  }

  // Read as soon as it changed.
  static void Take(RankSigns* signs, const RankProgress& page, MonoTime now) {
    signs->TakePage(page, now, now);
  }

  std::string directory_;
  SignOptions options_;
  MonoTime now_ = MonoTime(std::chrono::hours(1));
};

TEST_F(RankSignsTest, LinesOfTheLogAreSigns) {
  RankSigns signs(options_, now_);
  EXPECT_EQ(Look(&signs).source, SignSource::kNone) << "there is no log";
  for (int i = 1; i <= 3; ++i) Print("step " + std::to_string(i) + "/100");
  EXPECT_EQ(Look(&signs).source, SignSource::kLog);
  EXPECT_EQ(Look(&signs).log_step, 3);
  EXPECT_EQ(Look(&signs).log_total, 100);
  EXPECT_EQ(signs.Signs(now_).still, 2s);
  Print("nothing");
  EXPECT_EQ(Look(&signs).still, 3s);
  Print("step 4/100");
  EXPECT_EQ(Look(&signs).still, 0s);
}

TEST_F(RankSignsTest, OfMuchOutputTheNewestIsRead) {
  RankSigns signs(options_, now_);
  for (int i = 1; i <= 5000; ++i) Print("step " + std::to_string(i));
  EXPECT_EQ(Look(&signs).log_step, 5000);
}

TEST_F(RankSignsTest, LinesBeforeTheWatchBeganAreNot) {
  for (int i = 1; i <= 9; ++i) Print("step " + std::to_string(i));
  RankSigns signs(options_, now_);
  EXPECT_EQ(Look(&signs).source, SignSource::kNone);
}

TEST_F(RankSignsTest, StepsOfASessionAreSignsAndItsPausesNone) {
  RankSigns signs(options_, now_);
  Take(&signs, Page(1, "compute"), now_);
  EXPECT_EQ(signs.Signs(now_).source, SignSource::kNone) << "no step yet";
  for (int step = 2; step <= 20; ++step) {
    Take(&signs, Page(step, "compute"), now_ += 1s);
  }
  EXPECT_EQ(signs.Signs(now_).source, SignSource::kSession);
  for (int i = 0; i < 600; ++i) {
    Take(&signs, Page(20, "evaluation"), now_ += 1s);
    EXPECT_LE(signs.Signs(now_).still, 1s);
  }
  EXPECT_EQ(signs.Signs(now_).usual, 1s);
}

TEST_F(RankSignsTest, AStepCountsFromTheChangeOfThePage) {
  RankSigns signs(options_, now_);
  Take(&signs, Page(1, "compute"), now_);
  Take(&signs, Page(2, "compute"), now_ += 1s);
  // It is read 700 ms after the rank has written it.
  signs.TakePage(Page(3, "compute"), now_ + 300ms, now_ + 1s);
  now_ += 1s;
  EXPECT_EQ(signs.Signs(now_).still, 700ms);
  // No clock of a rank puts a change before the last reading, or after this.
  signs.TakePage(Page(4, "compute"), now_ - 60s, now_ + 1s);
  now_ += 1s;
  EXPECT_EQ(signs.Signs(now_).still, 1s);
  signs.TakePage(Page(5, "compute"), now_ + 60s, now_);
  EXPECT_EQ(signs.Signs(now_).still, 0s);
}

TEST_F(RankSignsTest, WhenTheProcessHasLeftTheWatchBeginsAnew) {
  RankSigns signs(options_, now_);
  for (int step = 1; step <= 20; ++step) {
    Take(&signs, Page(step, "compute"), now_ += 1s);
  }
  Take(&signs, Page(20, "finished"), now_ += 1s);
  EXPECT_EQ(signs.Signs(now_).source, SignSource::kNone);
  EXPECT_EQ(signs.Signs(now_).limit, options_.first_sign);
}

}  // namespace
}  // namespace lockstep::worker::agent
