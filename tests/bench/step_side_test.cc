#include "tests/bench/step_side.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace lockstep {
namespace {

using testing::HasSubstr;

// A rank in sh: ready, a line for each line (ten times as long for a word),
// which it keeps in DIR/lines-RANK, and `end`.
Command Script(const std::string& end) {
  return [=](int rank, const std::string& dir) {
    return std::vector<std::string>{
        "/bin/sh", "-c",
        "printf 'ready\\tx=1.2\\ty=a b\\n'; while read n word; do "
        "echo $n $word >>" +
            dir + "/lines-" + std::to_string(rank) + "; echo " +
            std::to_string(100 * (rank + 1)) +
            " 1000000100${word:+0} 0.5 0.25; done; " + end};
  };
}

class StepSideTest : public testing::Test {
 protected:
  StepSideTest() {
    char name[] = "/tmp/lockstep-step-side-test-XXXXXX";
    dir_ = mkdtemp(name);
  }
  ~StepSideTest() override { std::filesystem::remove_all(dir_); }
  std::string dir_;
};

TEST_F(StepSideTest, TellsVersionsTimesAndTheEnd) {
  Side side("a side", Script("echo end 00ff 2.25 1e-6"));
  ASSERT_TRUE(side.Start(dir_).ok());
  EXPECT_EQ(side.versions().at("x"), "1.2");
  EXPECT_EQ(side.versions().at("y"), "a b");
  EXPECT_EQ(side.pids().size(), 2u);
  const auto sample = side.Run(10);
  ASSERT_TRUE(sample.ok());
  // From the first start to the last end.
  EXPECT_DOUBLE_EQ(sample->seconds, 0.1);
  EXPECT_DOUBLE_EQ(sample->exposed, 0.025);
  const auto word = side.Run(10, Exchanged::kWord);
  ASSERT_TRUE(word.ok());
  EXPECT_DOUBLE_EQ(word->seconds, 1.00000009);
  const auto ends = side.End();
  ASSERT_TRUE(ends.ok());
  ASSERT_EQ(ends->size(), 2u);
  EXPECT_EQ((*ends)[1].hash, "00ff");
  EXPECT_DOUBLE_EQ((*ends)[1].loss, 2.25);
}

TEST_F(StepSideTest, TakesBothStepsByTurns) {
  Side side("a side", Script("exit 0"));
  ASSERT_TRUE(side.Start(dir_).ok());
  const auto both = side.RunRound(
      {.samples = 2, .turns = 2, .steps = 3, .settles = false}, true, 0);
  ASSERT_TRUE(both.ok());
  ASSERT_EQ(both->gradients.size(), 2u);
  ASSERT_EQ(both->word.size(), 2u);
  // Means.
  EXPECT_DOUBLE_EQ(both->gradients[1].seconds, 1 / 3.0);
  EXPECT_DOUBLE_EQ(both->gradients[1].exposed, 0.25 / 3);
  EXPECT_NEAR(both->word[1].seconds, 10 / 3.0, 1e-6);
  const auto one = side.RunRound({.samples = 2}, false, 1);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->gradients.size(), 2u);
  EXPECT_TRUE(one->word.empty());
  std::ifstream file(dir_ + "/lines-1");
  const std::string lines(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(lines,
            "3\n3 word\n3 word\n3\n"
            "3 word\n3\n3\n3 word\n"
            "1\n1\n1\n1\n");
}

TEST_F(StepSideTest, ARankThatSaysNothingInTheEndIsAnError) {
  Side side("a side", Script("exit 3"));
  ASSERT_TRUE(side.Start(dir_).ok());
  EXPECT_THAT(Message(side.End().status()), HasSubstr("a side, rank 0"));
}

TEST_F(StepSideTest, AProgramThatIsNotThereIsAnError) {
  Side side("none", [](int, const std::string&) {
    return std::vector<std::string>{"/nonexistent/program"};
  });
  EXPECT_FALSE(side.Start(dir_).ok());
}

TEST(StepCheckTest, OursMustBeEqualAndFloat64s) {
  EXPECT_TRUE(CheckOurs({{"a", 2, 1e-6}, {"a", 2, 1e-5}}).good);
  EXPECT_FALSE(CheckOurs({{"a", 2, 1e-6}, {"b", 2, 1e-6}}).good);
  EXPECT_FALSE(CheckOurs({{"a", 2, 1e-6}, {"a", 2, 0.5}}).good);
  EXPECT_FALSE(CheckOurs({{"a", 2, std::nan("")}, {"a", 2, 0}}).good);
  EXPECT_FALSE(CheckOurs({}).good);
  EXPECT_TRUE(CheckOurs({{"a", 2, 0.05}, {"a", 2, 0.05}}, {.error = 0.1}).good);
}

TEST(StepCheckTest, PeersMustBeEqualAndHaveOurLosses) {
  const std::vector<StepEnd> ours = {{"a", 2.0, 0}, {"a", 3.0, 0}};
  EXPECT_TRUE(CheckPeer({{"x", 2.001, 0}, {"x", 2.999, 0}}, ours).good);
  EXPECT_FALSE(CheckPeer({{"x", 2, 0}, {"y", 3, 0}}, ours).good);
  EXPECT_FALSE(CheckPeer({{"x", 2, 0}, {"x", 3.1, 0}}, ours).good);
  EXPECT_FALSE(CheckPeer({{"x", std::nan(""), 0}, {"x", 3, 0}}, ours).good);
  EXPECT_FALSE(CheckPeer({}, ours).good);
}

}  // namespace
}  // namespace lockstep
