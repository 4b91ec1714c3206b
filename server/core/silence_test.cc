#include "server/core/silence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using Kind = Outlook::Kind;

JobSpec Program() {
  JobSpec spec;
  spec.kind = JobKind::kProgram;
  return spec;
}

JobSpec Timed(Duration timeout) {
  JobSpec spec = Program();
  spec.node_lost_timeout = timeout;
  return spec;
}

TEST(FenceOfTest, TheRanksEndBeforeTheHostCountsAsLost) {
  EXPECT_EQ(FenceOf(Program(), {}), (Fence{4min, true}));
  EXPECT_EQ(FenceOf(Timed(5min), {}), (Fence{4min, false}));
  EXPECT_EQ(FenceOf(Timed(60s), {}), (Fence{48s, false}));
  EXPECT_EQ(FenceOf(Timed(10s), {}), (Fence{5s, false})) << "5 s at least";
  EXPECT_EQ(FenceOf(Timed(60min), {}), (Fence{59min, false}))
      << "1 min at most";
  JobSpec never = Program();
  never.node_loss = NodeLoss::kNever;
  EXPECT_EQ(FenceOf(never, {}), std::nullopt);
  EXPECT_EQ(FenceOf(JobSpec(), {}), std::nullopt) << "native";
}

class AttestationTest : public testing::Test {
 protected:
  void Ask() {
    attestation_.Begin(++id_, {"b", "c"}, clock_.Now().mono, options_);
  }
  void Answer(const NodeName& node, std::optional<Duration> quiet) {
    attestation_.Take(id_, node, {"a", false, "", quiet}, clock_.Now().mono);
  }

  FakeClock clock_;
  SilenceOptions options_;
  Attestation attestation_;
  uint64_t id_ = 0;
};

TEST_F(AttestationTest, TheOneThatAnsweredLastCounts) {
  EXPECT_TRUE(attestation_.IsDue(clock_.Now().mono));
  Ask();
  EXPECT_FALSE(attestation_.IsDue(clock_.Now().mono));
  Answer("b", 9min);
  EXPECT_FALSE(attestation_.finding()) << "c has not answered";
  Answer("c", 7min);
  ASSERT_TRUE(attestation_.finding());
  EXPECT_EQ(attestation_.finding()->quiet, 7min);
  EXPECT_EQ(attestation_.finding()->last, "c");
  EXPECT_EQ(attestation_.finding()->asked_at, clock_.Now().mono);
  EXPECT_THAT(attestation_.finding()->asked, ElementsAre("b", "c"));
}

TEST_F(AttestationTest, AnOlderDaemonCannotSay) {
  Ask();
  Answer("b", 9min);
  Answer("c", std::nullopt);
  ASSERT_TRUE(attestation_.finding());
  EXPECT_EQ(attestation_.finding()->quiet, 0s);
}

TEST_F(AttestationTest, LateAndStrangeAnswersDoNotCount) {
  Ask();
  Answer("d", 9min);
  attestation_.Take(id_ + 1, "b", {"a", false, "", 9min}, clock_.Now().mono);
  Answer("b", 9min);
  clock_.Advance(options_.answer_timeout + 1s);
  Answer("c", 9min);
  EXPECT_FALSE(attestation_.finding());
  clock_.Advance(options_.ask_again);
  EXPECT_TRUE(attestation_.IsDue(clock_.Now().mono));
}

class OutlookTest : public testing::Test {
 protected:
  OutlookTest() {
    silence_.node = "a";
    silence_.since = clock_.Now().wall;
    silence_.neighbours = 2;
    fence_ = FenceOf(spec_, options_);
  }
  void Answered(Duration quiet) {
    silence_.finding = {{}, {"b", "c"}, quiet, "c"};
    silence_.all_asked = true;
  }
  Outlook At(Duration silent) {
    silence_.silent = silent;
    return OutlookOf(spec_, fence_, silence_, options_);
  }

  FakeClock clock_;
  SilenceOptions options_;
  JobSpec spec_ = Program();
  std::optional<Fence> fence_;
  Silence silence_;
};

TEST_F(OutlookTest, TheOnlySilentHostIsLostAfterItsRanksHaveEnded) {
  const Outlook first = At(4s);
  EXPECT_EQ(first.kind, Kind::kMoves);
  EXPECT_EQ(first.ends, silence_.since + 4min);
  EXPECT_EQ(first.moves, silence_.since + 5min);
  EXPECT_THAT(Describe(first, silence_),
              HasSubstr("its ranks end by themselves by"));
  Answered(20min);
  EXPECT_EQ(At(5min).kind, Kind::kMoves) << "not before the time";
  EXPECT_EQ(At(5min + 1s).kind, Kind::kLost);
}

TEST_F(OutlookTest, WithoutTheAnswersOfItsNeighboursItIsNotLost) {
  EXPECT_EQ(At(5min + 1s).kind, Kind::kMoves) << "they are being asked";
  EXPECT_EQ(At(5min + 30s).kind, Kind::kWaits);
  Answered(4min);
  EXPECT_EQ(At(6min).kind, Kind::kWaits) << "clocks differ";
  EXPECT_THAT(At(6min).why, HasSubstr("c has answered it since"));
  Answered(4min + 1s);
  EXPECT_EQ(At(6min).kind, Kind::kLost);
}

TEST_F(OutlookTest, HostsThatFellSilentTogetherWaitForAnOperator) {
  Answered(20min);
  silence_.together = {"d", "e"};
  const Outlook waits = At(20min);
  EXPECT_EQ(waits.kind, Kind::kWaits);
  const std::string text = Describe(waits, silence_);
  EXPECT_THAT(text, HasSubstr("d, e fell silent at about the same time"));
  EXPECT_THAT(text, HasSubstr("`lockstep nodes forget a --yes`"));
}

TEST_F(OutlookTest, TheOnlyHostWaits) {
  silence_.neighbours = 0;
  EXPECT_EQ(At(20min).kind, Kind::kWaits);
  EXPECT_THAT(At(20min).why, HasSubstr("no other host"));
}

TEST_F(OutlookTest, WithoutAConfirmedFenceNothingMoves) {
  Answered(20min);
  fence_.reset();
  EXPECT_EQ(At(20min).kind, Kind::kWaits);
  EXPECT_THAT(At(20min).why, HasSubstr("has not confirmed"));
  fence_ = Fence{297s, true};
  EXPECT_EQ(At(20min).kind, Kind::kWaits) << "launched with other options";
}

TEST_F(OutlookTest, ATimeOfTheJobHoldsWhateverTheNeighboursSay) {
  spec_ = Timed(60s);
  fence_ = FenceOf(spec_, options_);
  silence_.together = {"d"};
  silence_.neighbours = 0;
  EXPECT_EQ(At(60s).kind, Kind::kMoves);
  EXPECT_EQ(At(60s).moves, silence_.since + 60s);
  EXPECT_EQ(At(61s).kind, Kind::kLost);
  fence_ = Fence{48s, true};
  EXPECT_EQ(At(61s).kind, Kind::kWaits)
      << "neighbours may keep what runs there alive";
}

TEST_F(OutlookTest, NeverMeansNever) {
  spec_.node_loss = NodeLoss::kNever;
  Answered(20min);
  EXPECT_EQ(At(20min).kind, Kind::kWaits);
}

TEST(NeighboursOfTest, TheNextOnesOnOtherHostsInARing) {
  std::vector<Listed> all;
  for (const auto& [node, host] :
       std::map<NodeName, int>{{"a", 1}, {"b", 2}, {"c", 2}, {"d", 3}}) {
    all.push_back({{node, fmt::format("10.0.0.{}", host), 4000}, "p"});
  }
  const auto lists = NeighboursOf(all);
  const auto names = [&](const NodeName& node) {
    std::vector<NodeName> names;
    for (const ProbeTarget& target : lists.at(node).targets) {
      names.push_back(target.node);
    }
    return names;
  };
  EXPECT_THAT(names("a"), ElementsAre("b", "d"));
  EXPECT_THAT(names("b"), ElementsAre("d", "a")) << "c is on its host";
  EXPECT_THAT(names("d"), ElementsAre("a", "b"));
}

TEST(NeighboursOfTest, AtMostEightAndNoneInAClusterOfOneHost) {
  std::vector<Listed> all;
  for (int i = 0; i < 50; ++i) {
    all.push_back(
        {{fmt::format("n{:02}", i), fmt::format("10.0.0.{}", i + 1), 1}, "p"});
  }
  EXPECT_THAT(NeighboursOf(all).at("n49").targets, SizeIs(8));
  all.resize(1);
  EXPECT_THAT(NeighboursOf(all).at("n00").targets, IsEmpty());
}

}  // namespace
}  // namespace lockstep::server
