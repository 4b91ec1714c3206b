#include "server/core/flight_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/core/hang_verdict.h"

namespace lockstep::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RankEvidence Recorded(int32_t rank, std::vector<FlightRecord> records) {
  RankEvidence evidence;
  evidence.rank = rank;
  evidence.flight_records = std::move(records);
  return evidence;
}

FlightRecord Done(int64_t sequence, const std::string& group = "dp") {
  return {group, sequence, "all_reduce", kFlightCompleted};
}
FlightRecord Open(int64_t sequence, const std::string& group = "dp",
                  const std::string& operation = "all_reduce") {
  return {group, sequence, operation, "started"};
}

TEST(FlightVerdictTest, TheRankThatHasNotBegunIsTheCause) {
  const auto verdict = JudgeFlight(
      {Recorded(0, {Done(4), Open(5)}), Recorded(1, {Done(3), Done(4)}),
       Recorded(2, {Done(4), Open(5)})},
      {});
  ASSERT_TRUE(verdict.has_value());
  EXPECT_THAT(verdict->cause, ElementsAre(1));
  EXPECT_EQ(verdict->what,
            "has not begun all_reduce 5 of group dp, in which 2 ranks wait");
}

// Pipeline and data parallel: rank 1 waits for rank 3 in another group.
TEST(FlightVerdictTest, ARankThatWaitsElsewhereIsNotTheCause) {
  const auto verdict = JudgeFlight(
      {Recorded(0, {Open(5)}), Recorded(1, {Done(4), Open(9, "tp")}),
       Recorded(2, {Open(5)}), Recorded(3, {Done(8, "tp")})},
      {});
  ASSERT_TRUE(verdict.has_value());
  EXPECT_THAT(verdict->cause, ElementsAre(3));
  EXPECT_THAT(verdict->what, HasSubstr("all_reduce 9 of group tp"));
}

// Ranks begin operations ahead of their GPU, each as many as it likes.
TEST(FlightVerdictTest, HowFarTheOthersAreAheadDoesNotMatter) {
  const auto verdict = JudgeFlight(
      {Recorded(0, {Open(5), Open(6), Open(7)}), Recorded(1, {Done(4)}),
       Recorded(2, {Open(5), Open(6)}), Recorded(3, {Open(5)})},
      {});
  ASSERT_TRUE(verdict.has_value());
  EXPECT_THAT(verdict->cause, ElementsAre(1));
  EXPECT_EQ(verdict->what,
            "has not begun all_reduce 5 of group dp, in which 3 ranks wait");
  // Rank 1 reads the result of 5, and 5 does not end.
  const auto all = JudgeFlight(
      {Recorded(0, {Open(5), Open(6)}), Recorded(1, {Open(5)})}, {});
  ASSERT_TRUE(all.has_value());
  EXPECT_THAT(all->cause, IsEmpty());
  EXPECT_THAT(all->what, HasSubstr("all in operation 5"));
}

TEST(FlightVerdictTest, ARankThatIsStillInWhatOthersHaveFinishedIsTheCause) {
  const auto verdict = JudgeFlight(
      {Recorded(0, {Done(4), Open(5)}), Recorded(1, {Open(4)})}, {});
  ASSERT_TRUE(verdict.has_value());
  EXPECT_THAT(verdict->cause, ElementsAre(1));
  EXPECT_EQ(verdict->what,
            "is still in all_reduce 4 of group dp, which 1 rank has finished");
}

TEST(FlightVerdictTest, WhereAllAreInTheSameNoneIsNamed) {
  const auto same =
      JudgeFlight({Recorded(0, {Open(5)}), Recorded(1, {Open(5)})}, {});
  ASSERT_TRUE(same.has_value());
  EXPECT_THAT(same->cause, IsEmpty());
  EXPECT_EQ(same->what,
            "ranks 0 and 1 are all in operation 5 of group dp: all_reduce, "
            "which does not end");
  const auto differ = JudgeFlight(
      {Recorded(0, {Open(5)}), Recorded(1, {Open(5, "dp", "broadcast")})}, {});
  ASSERT_TRUE(differ.has_value());
  EXPECT_THAT(differ->cause, IsEmpty());
  EXPECT_THAT(differ->what, HasSubstr("they call all_reduce and broadcast"));
}

TEST(FlightVerdictTest, WithoutRecordsOfAllNothingIsKnown) {
  EXPECT_FALSE(JudgeFlight({Recorded(0, {Open(5)}), Recorded(1, {})}, {}));
  EXPECT_FALSE(
      JudgeFlight({Recorded(0, {Open(5)}), Recorded(1, {Done(4)})}, {2}));
  EXPECT_FALSE(
      JudgeFlight({Recorded(0, {Done(5)}), Recorded(1, {Done(5)})}, {}));
  EXPECT_FALSE(JudgeFlight({Recorded(0, {Open(5)})}, {}));
}

TEST(FlightVerdictTest, MostRanksAreNotNamed) {
  EXPECT_FALSE(JudgeFlight(
      {Recorded(0, {Open(5)}), Recorded(1, {Done(4)}), Recorded(2, {Done(4)})},
      {}));
}

// Their stacks tell nothing: all wait for their GPU.
TEST(FlightVerdictTest, TheVerdictOfAHangUsesIt) {
  std::vector<RankEvidence> evidence = {
      Recorded(0, {Open(5)}), Recorded(1, {Done(4)}), Recorded(2, {Open(5)})};
  for (RankEvidence& rank : evidence) {
    ProcessEvidence process;
    process.pid = 1;
    process.state = "S";
    process.stack_source = kPySpySource;
    ThreadEvidence thread;
    thread.main = true;
    thread.state = "S";
    thread.frames = {{"train", "step", "train.py", 7, false}};
    process.threads = {thread};
    rank.processes = {process};
  }
  const HangVerdict verdict = JudgeHang(evidence, GroupRanks(evidence), {});
  EXPECT_THAT(verdict.cause, ElementsAre(1));
  EXPECT_THAT(verdict.sentence,
              HasSubstr("rank 1 has not begun all_reduce 5 of group dp, in "
                        "which 2 ranks wait"));
  EXPECT_THAT(verdict.sentence, HasSubstr("step (train.py:7)"));
}

}  // namespace
}  // namespace lockstep::server
