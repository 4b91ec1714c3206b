#include "tests/bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/bench/busy_rounds.h"
#include "tests/bench/core_distance.h"
#include "tests/bench/verdict.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

using Samples = std::vector<std::vector<double>>;

BenchResult ResultOf(const Samples& ours, const Samples& peer) {
  BenchResult result;
  result.id = "X1";
  result.bytes = 25 << 20;
  result.ranks = 2;
  result.peer = "a peer: with settings";
  result.ours_seconds = ours;
  result.peer_seconds = peer;
  result.verified = true;
  return result;
}

// Seven rounds, in which the peer takes twice as long, and a bit.
BenchResult Twice() {
  Samples ours, peer;
  for (int round = 0; round < 7; ++round) {
    ours.push_back({1.0, 1.0, 1.1});
    peer.push_back({2.0 + 0.01 * round, 2.0 + 0.01 * round, 9});
  }
  return ResultOf(ours, peer);
}

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/lockstep-report-test-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string File() const { return path_ + "/out.json"; }

 private:
  std::string path_;
};

json Read(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file);
}

TEST(PercentileTest, IsTheNearestRank) {
  EXPECT_EQ(Percentile({}, 0.5), 0);
  EXPECT_EQ(Percentile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(Percentile({4, 1, 3, 2}, 0.5), 2);
  EXPECT_EQ(Percentile({4, 1, 3, 2}, 0), 1);
  EXPECT_EQ(Percentile({4, 1, 3, 2}, 1), 4);
}

TEST(RatioTest, IsOfTheMediansOfAllSamples) {
  const BenchResult result = Twice();
  const Ratio ratio = RatioOf(result);
  EXPECT_DOUBLE_EQ(OursMedian(result), 1.0);
  EXPECT_DOUBLE_EQ(ratio.value, PeerMedian(result));
}

TEST(RatioTest, OfPairsIsTheMedianOfTheirRatios) {
  BenchResult result = ResultOf({{1, 10}, {100, 7}}, {{2, 20}, {200, 21}});
  EXPECT_DOUBLE_EQ(RatioOf(result).value, 20.0 / 7);
  result.paired = true;
  // Whatever the machine did, all but one took twice as long.
  const Ratio ratio = RatioOf(result);
  EXPECT_DOUBLE_EQ(ratio.value, 2);
  EXPECT_DOUBLE_EQ(ratio.low, 2);
  // Rounds are drawn whole.
  EXPECT_DOUBLE_EQ(ratio.high, 2);
}

TEST(RatioTest, IntervalHoldsTheRoundsMedians) {
  const Ratio ratio = RatioOf(Twice());
  EXPECT_GE(ratio.low, 2.0);
  EXPECT_LE(ratio.high, 2.06);
  EXPECT_LT(ratio.low, ratio.high);
  EXPECT_LE(ratio.low, ratio.value);
  EXPECT_GE(ratio.high, ratio.value);
}

TEST(RatioTest, EqualRoundsHaveNoInterval) {
  const Ratio ratio =
      RatioOfMedians({{2}, {2}, {2}}, {{5}, {5}, {5}}, kBootstrapSeed);
  EXPECT_EQ(ratio.value, 2.5);
  EXPECT_EQ(ratio.low, 2.5);
  EXPECT_EQ(ratio.high, 2.5);
}

TEST(RatioTest, OneWildRoundOfSevenMovesTheEndOnly) {
  Samples ours(7, {1.0});
  Samples peer(7, {2.0});
  ours[3] = {10.0};
  const Ratio ratio = RatioOfMedians(ours, peer, 1);
  EXPECT_EQ(ratio.value, 2.0);
  EXPECT_EQ(ratio.low, 2.0);
}

TEST(RatioTest, NoisyRoundsHaveAWideInterval) {
  Samples ours, peer;
  for (int round = 0; round < 7; ++round) {
    ours.push_back({round < 4 ? 1.0 : 3.0});
    peer.push_back({3.0});
  }
  const Ratio ratio = RatioOfMedians(ours, peer, 1);
  EXPECT_EQ(ratio.low, 1.0);
  EXPECT_EQ(ratio.high, 3.0);
}

TEST(JsonTest, SaysAllThatATableNeeds) {
  const TempDir dir;
  BenchResult result = Twice();
  result.must = 1.9;
  result.aim = 2.5;
  result.checked = "twice";
  result.limit_seconds = 0.5;
  result.limit_what = "half";
  result.repeated_rounds = 3;
  result.parted_runs = 2;
  result.kept_parted_runs = 1;
  ASSERT_TRUE(
      AddToJson(dir.File(), {{"peer", "1.2"}}, {result}, {{"input", "7"}})
          .ok());
  const json document = Read(dir.File());
  const std::string kernel = document["machine"].value("kernel", "");
  EXPECT_TRUE(kernel.starts_with("Linux ")) << kernel;
  EXPECT_EQ(kernel.find('-'), std::string::npos) << kernel;
  EXPECT_TRUE(document["machine"].contains("cpu"));
  EXPECT_EQ(document["versions"]["peer"], "1.2");
  EXPECT_EQ(document["seeds"]["bootstrap"], "1");
  EXPECT_EQ(document["seeds"]["input"], "7");
  ASSERT_EQ(document["results"].size(), 1u);
  const json& entry = document["results"][0];
  EXPECT_EQ(entry["id"], "X1");
  EXPECT_EQ(entry["rounds"], 7);
  EXPECT_EQ(entry["samples"], 21);
  EXPECT_EQ(entry["ours_seconds"], 1.0);
  EXPECT_EQ(entry["ours_rounds_seconds"].size(), 7u);
  EXPECT_EQ(entry["peer_rounds_seconds"][0], 2.0);
  EXPECT_EQ(entry["repeated_rounds"], 3);
  EXPECT_EQ(entry["busy_rounds"], 0);
  EXPECT_EQ(entry["parted_runs"], 2);
  EXPECT_EQ(entry["kept_parted_runs"], 1);
  EXPECT_EQ(entry["limit_what"], "half");
  EXPECT_EQ(entry["limit_ratio"], PeerMedian(result) / 0.5);
  EXPECT_EQ(entry["met"], true);
}

TEST(JsonTest, MetIsOfTheLowerEnd) {
  const TempDir dir;
  BenchResult result = Twice();
  const Ratio ratio = RatioOf(result);
  result.must = (ratio.low + ratio.value) / 2;
  ASSERT_TRUE(AddToJson(dir.File(), {}, {result}).ok());
  EXPECT_EQ(Read(dir.File())["results"][0]["met"], false);
}

TEST(JsonTest, AddsToWhatIsThere) {
  const TempDir dir;
  ASSERT_TRUE(AddToJson(dir.File(), {{"a", "1"}}, {Twice()}).ok());
  ASSERT_TRUE(AddToJson(dir.File(), {{"b", "2"}}, {Twice()}).ok());
  const json document = Read(dir.File());
  EXPECT_EQ(document["results"].size(), 2u);
  EXPECT_EQ(document["versions"].size(), 2u);
}

TEST(JsonTest, LeavesAStrangersFileAlone) {
  const TempDir dir;
  std::ofstream(dir.File()) << "no JSON";
  EXPECT_EQ(AddToJson(dir.File(), {}, {Twice()}).code(),
            StatusCode::kFailedPrecondition);
  std::string text;
  std::getline(std::ifstream(dir.File()), text);
  EXPECT_EQ(text, "no JSON");
}

TEST(VerdictTest, HoldsTheLowerEndAgainstMust) {
  BenchResult result = Twice();
  const Ratio ratio = RatioOf(result);
  result.must = ratio.low;
  EXPECT_TRUE(JudgeResults({result}, {}).status.ok());
  result.must = ratio.low + 1e-9;
  const Verdict verdict = JudgeResults({result}, {});
  EXPECT_EQ(verdict.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ExitCodeOf(verdict.status), 1);
  EXPECT_THAT(verdict.lines,
              ElementsAre(HasSubstr("X1 25 MiB against a peer: lower end")));
  EXPECT_THAT(verdict.lines, ElementsAre(HasSubstr("MISSED")));
}

TEST(VerdictTest, AGateOnTheMedianLeavesRoom) {
  BenchResult result = Twice();
  result.must = RatioOf(result).value / 0.8;
  EXPECT_TRUE(JudgeResults({result}, {0.8, true}).status.ok());
  EXPECT_FALSE(JudgeResults({result}, {0.81, true}).status.ok());
}

TEST(VerdictTest, WrongDataIsWorseThanAnything) {
  BenchResult wrong = Twice();
  wrong.verified = false;
  wrong.busy_rounds = 7;
  const Verdict verdict = JudgeResults({wrong}, {});
  EXPECT_EQ(verdict.status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(ExitCodeOf(verdict.status), 1);
}

TEST(VerdictTest, WhatNothingIsAskedOfIsNotJudged) {
  const Verdict verdict = JudgeResults({Twice()}, {});
  EXPECT_TRUE(verdict.status.ok());
  EXPECT_TRUE(verdict.lines.empty());
}

TEST(VerdictTest, MissedOnABusyMachineIsNotMeasured) {
  BenchResult result = Twice();
  result.must = 3;
  result.busy_rounds = 1;
  EXPECT_EQ(ExitCodeOf(JudgeResults({result}, {}).status), kExitNotMeasured);
  BenchResult quiet = Twice();
  quiet.must = 3;
  EXPECT_EQ(ExitCodeOf(JudgeResults({result, quiet}, {}).status), 1);
}

TEST(VerdictTest, MissedOnAnUnsteadyMachineIsNotMeasured) {
  BenchResult result = Twice();
  result.must = 3;
  result.peer_seconds[3] = {3.5, 3.5, 3.5};
  EXPECT_EQ(ExitCodeOf(JudgeResults({result}, {}).status), kExitNotMeasured);
  result.by_turns = true;
  EXPECT_EQ(ExitCodeOf(JudgeResults({result}, {}).status), 1);
  result.by_turns = false;
  result.peer_seconds[3] = {2.9, 2.9, 2.9};
  EXPECT_EQ(ExitCodeOf(JudgeResults({result}, {}).status), 1);
}

constexpr CpuShares kBusy = {.foreign = 0.2, .stolen = 0};
constexpr CpuShares kQuiet = {.foreign = 0.01, .stolen = 0};
using Next = BusyRounds::Next;

TEST(BusyRoundsTest, RepeatsAsOftenAsThereAreRounds) {
  BusyRounds rounds(OnBusy::kRepeat, 2);
  EXPECT_EQ(rounds.Judge(kBusy, true), Next::kKeep);
  EXPECT_EQ(rounds.Judge(kQuiet, false), Next::kKeep);
  EXPECT_EQ(rounds.Judge(kBusy, false), Next::kRepeat);
  EXPECT_EQ(rounds.Judge({.foreign = 0, .stolen = 0.02}, false), Next::kRepeat);
  EXPECT_EQ(rounds.Judge(kBusy, false), Next::kGiveUp);
  EXPECT_EQ(rounds.repeated(), 2);
  EXPECT_EQ(rounds.kept_busy(), 0);
}

TEST(BusyRoundsTest, TakesThemWhereAskedTo) {
  BusyRounds forced(OnBusy::kTake, 8);
  EXPECT_EQ(forced.Judge(kBusy, false), Next::kKeep);
  EXPECT_EQ(forced.kept_busy(), 1);
  BusyRounds lenient(OnBusy::kRepeatThenTake, 2);
  EXPECT_EQ(lenient.Judge(kBusy, false), Next::kRepeat);
  EXPECT_EQ(lenient.Judge(kBusy, false), Next::kKeep);
  EXPECT_EQ(lenient.kept_busy(), 1);
  lenient.Restart();
  EXPECT_EQ(lenient.kept_busy(), 0);
}

TEST(CoreDistanceTest, OnlyFarMoreTimeMeansApart) {
  EXPECT_FALSE(AreApart(0));
  EXPECT_FALSE(AreApart(3.6));
  EXPECT_TRUE(AreApart(6.8));
}

TEST(CoreDistanceTest, WhatRanWhileTheyPartedIsDoneAgainAFewTimes) {
  bool apart = false;
  CoreDistance distance([&] { return apart; });
  distance.WaitUntilNear();
  EXPECT_FALSE(distance.HaveParted());
  apart = true;
  for (int i = 0; i < CoreDistance::kMostAgain; ++i) {
    EXPECT_TRUE(distance.HaveParted());
  }
  EXPECT_FALSE(distance.HaveParted());
  EXPECT_EQ(distance.parted(), CoreDistance::kMostAgain);
  EXPECT_EQ(distance.kept(), 1);
  EXPECT_FALSE(distance.always_apart());
}

TEST(CoreDistanceTest, AMachineThatIsAlwaysSoIsTakenAsItIs) {
  CoreDistance distance([] { return true; }, Duration::zero());
  distance.WaitUntilNear();
  EXPECT_TRUE(distance.always_apart());
  EXPECT_FALSE(distance.HaveParted());
  EXPECT_EQ(distance.parted(), 0);
}

TEST(MachineLoadTest, WhatOthersUsedIsLeft) {
  const CpuReading before = {
      .total = 10, .busy = 5, .stolen = 0, .own = 2, .kernel = 1};
  const CpuReading after = {
      .total = 20, .busy = 12, .stolen = 0.5, .own = 6, .kernel = 2};
  const CpuShares shares = SharesBetween(before, after);
  EXPECT_DOUBLE_EQ(shares.foreign, 0.2);
  EXPECT_DOUBLE_EQ(shares.stolen, 0.05);
}

TEST(MachineLoadTest, ANamedProcessIsOurs) {
  const CpuReading without = ReadCpu();
  const CpuReading with = ReadCpu({getpid()});
  // This process twice.
  EXPECT_GE(with.own, without.own);
}

}  // namespace
}  // namespace lockstep
