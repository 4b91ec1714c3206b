#include "worker/runtime/control_word.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

namespace lockstep::worker::runtime {
namespace {

using ::testing::HasSubstr;

ControlInput Input() {
  ControlInput input;
  input.generation = 7;
  input.step = 12345678901;
  input.cursor = 0xdeadbeefcafe;
  input.fingerprint = 0x123456789abcdef0;
  return input;
}

ControlWords Sum(const std::vector<ControlInput>& inputs) {
  ControlWords sum{};
  for (const ControlInput& input : inputs) {
    const ControlWords words =
        EncodeControl(input, static_cast<int>(inputs.size()));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += words[i];
  }
  return sum;
}

// What rank 0 learns when `change` was made to rank 1 of 3.
StatusOr<ControlOutput> WithOne(
    const std::function<void(ControlInput*)>& change) {
  std::vector<ControlInput> inputs(3, Input());
  change(&inputs[1]);
  return DecodeControl(inputs[0], Sum(inputs), 3);
}

TEST(ControlWordTest, AgreementIsSilent) {
  StatusOr<ControlOutput> output = WithOne([](ControlInput*) {});
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_TRUE(output->check.ok()) << output->check;
  EXPECT_FALSE(output->nonfinite || output->drain || output->alarm ||
               output->collision || output->checkpoint_complete ||
               output->checkpoint_given_up || output->directive);
}

TEST(ControlWordTest, WhoIsElsewhereIsNamedByWhatDiffers) {
  struct Case {
    std::function<void(ControlInput*)> change;
    const char* named;
  };
  const Case cases[] = {
      {[](ControlInput* i) { --i->generation; }, "generation"},
      {[](ControlInput* i) { ++i->step; }, "step"},
      {[](ControlInput* i) { i->cursor ^= 1; }, "data cursor"},
      {[](ControlInput* i) { i->fingerprint ^= 0x800; }, "configuration"},
  };
  for (const Case& c : cases) {
    StatusOr<ControlOutput> output = WithOne(c.change);
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(ReasonOf(output->check), "CONFIG_MISMATCH");
    EXPECT_THAT(Message(output->check),
                HasSubstr(std::string("same ") + c.named));
  }
}

TEST(ControlWordTest, DifferencesThatCancelAreSeenByThoseThatDiffer) {
  std::vector<ControlInput> inputs(3, Input());
  inputs[1].generation -= 1;
  inputs[2].generation += 1;
  const ControlWords sum = Sum(inputs);
  EXPECT_TRUE(DecodeControl(inputs[0], sum, 3)->check.ok());
  EXPECT_FALSE(DecodeControl(inputs[1], sum, 3)->check.ok());
  EXPECT_FALSE(DecodeControl(inputs[2], sum, 3)->check.ok());
}

TEST(ControlWordTest, OneFlagReachesAll) {
  EXPECT_TRUE(WithOne([](ControlInput* i) { i->nonfinite = true; })->nonfinite);
  EXPECT_TRUE(WithOne([](ControlInput* i) { i->drain = true; })->drain);
  EXPECT_TRUE(WithOne([](ControlInput* i) { i->alarm = true; })->alarm);
}

TEST(ControlWordTest, StateHashesAreComparedInAllTheirBits) {
  std::vector<ControlInput> inputs(2, Input());
  inputs[0].state_hash = inputs[1].state_hash = 0x0123456789abcdef;
  EXPECT_TRUE(DecodeControl(inputs[0], Sum(inputs), 2)->check.ok());
  for (int bit = 0; bit < 64; ++bit) {
    inputs[1].state_hash = *inputs[0].state_hash ^ (uint64_t{1} << bit);
    const Status check = DecodeControl(inputs[0], Sum(inputs), 2)->check;
    EXPECT_EQ(ReasonOf(check), "DIVERGED") << bit;
    EXPECT_THAT(Message(check), HasSubstr("replicas differ"));
  }
}

TEST(ControlWordTest, CheckpointIsCompleteWithTheLastVoteOnly) {
  std::vector<ControlInput> inputs(3, Input());
  auto learn = [&] { return *DecodeControl(inputs[0], Sum(inputs), 3); };
  inputs[0].vote = inputs[1].vote = CheckpointVote::kDurable;
  EXPECT_FALSE(learn().checkpoint_complete);
  inputs[2].vote = CheckpointVote::kDurable;
  EXPECT_TRUE(learn().checkpoint_complete);
  EXPECT_FALSE(learn().checkpoint_given_up);
}

TEST(ControlWordTest, OneThatGivesUpEndsItWhateverOthersVote) {
  for (CheckpointVote other : {CheckpointVote::kNone, CheckpointVote::kDurable,
                               CheckpointVote::kGivenUp}) {
    std::vector<ControlInput> inputs(3, Input());
    inputs[1].vote = CheckpointVote::kGivenUp;
    inputs[2].vote = other;
    StatusOr<ControlOutput> output = DecodeControl(inputs[0], Sum(inputs), 3);
    EXPECT_TRUE(output->checkpoint_given_up);
    EXPECT_FALSE(output->checkpoint_complete);
  }
}

TEST(ControlWordTest, TheSpeakersDirectiveIsTheSum) {
  const Directive directive{DirectiveOp::kStop, 0xfedcba98,
                            Input().step + kMaxDirectiveDistance};
  StatusOr<ControlOutput> output =
      WithOne([&](ControlInput* i) { i->directive = directive; });
  ASSERT_TRUE(output.ok()) << output.status();
  ASSERT_TRUE(output->directive.has_value());
  EXPECT_EQ(*output->directive, directive);
}

TEST(ControlWordTest, TwoSpeakersAreNotHeard) {
  std::vector<ControlInput> inputs(3, Input());
  inputs[0].directive = {DirectiveOp::kCheckpoint, 1, Input().step + 1};
  inputs[2].directive = {DirectiveOp::kStop, 2, Input().step + 1};
  StatusOr<ControlOutput> output = DecodeControl(inputs[0], Sum(inputs), 3);
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_TRUE(output->collision);
  EXPECT_FALSE(output->directive.has_value());
}

TEST(ControlWordTest, SumsAreExactAtTheLargestWorld) {
  ControlInput input = Input();
  input.generation = input.fingerprint = input.cursor = 0xfff;
  input.step = 0xfff;
  input.vote = CheckpointVote::kGivenUp;
  input.state_hash = 0xffffff;
  const ControlWords words = EncodeControl(input, kMaxControlRanks);
  ControlWords sum{};
  for (int r = 0; r < kMaxControlRanks; ++r) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += words[i];
  }
  StatusOr<ControlOutput> output = DecodeControl(input, sum, kMaxControlRanks);
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_TRUE(output->check.ok()) << output->check;
  // One that differs by the least is still seen.
  sum[0] -= 1;
  EXPECT_FALSE(DecodeControl(input, sum, kMaxControlRanks)->check.ok());
}

TEST(ControlWordTest, WhatNoSumCanBeIsDataLoss) {
  const ControlInput input = Input();
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::infinity(), -1.0f, 0.5f, 16777216.0f}) {
    for (size_t i = 0; i < kControlWords; ++i) {
      ControlWords sum = EncodeControl(input, 1);
      sum[i] = bad;
      EXPECT_EQ(DecodeControl(input, sum, 1).status().code(),
                StatusCode::kDataLoss);
    }
  }
}

TEST(ControlWordTest, AnUnknownDirectiveIsRefused) {
  ControlWords sum = EncodeControl(Input(), 1);
  sum[15] = 1;
  sum[11] = 1;
  sum[10] = 3;
  EXPECT_EQ(DecodeControl(Input(), sum, 1).status().code(),
            StatusCode::kDataLoss);
  sum[10] = 2;
  EXPECT_TRUE(DecodeControl(Input(), sum, 1).ok());
  sum[11] = 0;  // No step ahead.
  EXPECT_FALSE(DecodeControl(Input(), sum, 1).ok());
}

TEST(MixCursorTest, NeighboursDifferInTheLowBits) {
  EXPECT_EQ(MixCursor(1, 2), MixCursor(1, 2));
  EXPECT_NE(MixCursor(0, 64) & 0xfff, MixCursor(0, 128) & 0xfff);
  EXPECT_NE(MixCursor(0, 0) & 0xfff, MixCursor(1, 0) & 0xfff);
}

}  // namespace
}  // namespace lockstep::worker::runtime
