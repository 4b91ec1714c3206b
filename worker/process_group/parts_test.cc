// Spans, what is refused, and who gets what in an all-to-all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "worker/process_group/errors.h"
#include "worker/process_group/request.h"
#include "worker/process_group/span_list.h"
#include "worker/process_group/split_matrix.h"

namespace lockstep::worker::process_group {
namespace {

using ::testing::HasSubstr;

TEST(SpanListTest, JoinsWhatLiesSideBySide) {
  int32_t values[10] = {};
  const Span spans[] = {
      {values, 3}, {values + 3, 2}, {nullptr, 0}, {values + 7, 3}};
  const auto list = SpanList::Of(spans, 4);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->count(), 8u);
  EXPECT_EQ(list->Contiguous(1, 4), reinterpret_cast<char*>(values + 1));
  EXPECT_EQ(list->Contiguous(5, 3), reinterpret_cast<char*>(values + 7));
  EXPECT_EQ(list->Contiguous(4, 2), std::nullopt);
  EXPECT_EQ(list->Contiguous(8, 0), nullptr);
}

TEST(SpanListTest, CopiesAcrossSpans) {
  int16_t a[3] = {1, 2, 3};
  int16_t b[4] = {4, 5, 6, 7};
  const Span spans[] = {{a, 3}, {b, 4}};
  const auto list = SpanList::Of(spans, 2);
  ASSERT_TRUE(list.ok());
  int16_t out[4];
  list->CopyTo(reinterpret_cast<char*>(out), 1, 4);
  EXPECT_THAT(out, ::testing::ElementsAre(2, 3, 4, 5));
  const int16_t in[] = {-1, -2};
  list->CopyFrom(reinterpret_cast<const char*>(in), 2, 2);
  EXPECT_EQ(a[2], -1);
  EXPECT_EQ(b[0], -2);
  EXPECT_EQ(b[1], 5);
}

TEST(SpanListTest, KnowsWhatOverlaps) {
  char memory[64] = {};
  const auto of = [&](std::vector<std::pair<int, int>> ranges) {
    std::vector<Span> spans;
    for (const auto& [at, count] : ranges) {
      spans.push_back({memory + at, static_cast<uint64_t>(count)});
    }
    return *SpanList::Of(spans, 1);
  };
  EXPECT_TRUE(of({{0, 4}, {8, 4}}).Overlaps(of({{20, 4}, {11, 1}})));
  EXPECT_FALSE(of({{0, 4}, {8, 4}}).Overlaps(of({{4, 4}, {12, 1}})));
  EXPECT_FALSE(of({}).Overlaps(of({{0, 64}})));
  EXPECT_TRUE(of({{0, 4}, {4, 4}}).SameAs(of({{0, 8}})));
  EXPECT_FALSE(of({{0, 4}, {8, 4}}).SameAs(of({{8, 4}, {0, 4}})));
}

class RequestTest : public ::testing::Test {
 protected:
  // The error's text for rank 1 of 3; "" if there is none.
  std::string Refused(const Operation& operation) {
    const auto request = MakeRequest(operation, 1, 3);
    if (request.ok()) return "";
    EXPECT_TRUE(absl::IsInvalidArgument(request.status())) << request.status();
    return Message(request.status());
  }

  double memory_[12] = {};
  const Span three_[1] = {{memory_, 3}};
  const Span six_[1] = {{memory_ + 6, 6}};
  const Span next_three_[1] = {{memory_ + 3, 3}};
};

TEST_F(RequestTest, TakesWhatIsRight) {
  EXPECT_EQ(Refused({.input = three_, .output = three_}), "");
  EXPECT_EQ(Refused({.input = three_, .output = next_three_}), "");
  EXPECT_EQ(Refused({.collective = Collective::kBarrier}), "");
  EXPECT_EQ(Refused({.collective = Collective::kBroadcast, .output = six_}),
            "");
  EXPECT_EQ(Refused({.collective = Collective::kAllToAll,
                     .input = three_,
                     .output = six_}),
            "");
}

TEST_F(RequestTest, RefusesNumbersThatAreUnknown) {
  EXPECT_THAT(Refused({.collective = static_cast<Collective>(11)}),
              HasSubstr("collective 11 is unknown"));
  EXPECT_THAT(Refused({.collective = static_cast<Collective>(-1)}),
              HasSubstr("collective -1 is unknown"));
  EXPECT_THAT(Refused({.type = static_cast<Type>(10)}),
              HasSubstr("element type 10 is unknown"));
  EXPECT_THAT(Refused({.op = static_cast<ReduceOp>(5)}),
              HasSubstr("reduction 5 is unknown"));
  EXPECT_THAT(Refused({.collective = Collective::kBroadcast, .root = 3}),
              HasSubstr("rank 3 is out of range for 3 ranks"));
  EXPECT_THAT(Refused({.collective = Collective::kSend, .root = 1}),
              HasSubstr("rank 1 cannot send to itself"));
  EXPECT_THAT(Refused({.collective = Collective::kReceive, .root = -1}),
              HasSubstr("out of range"));
}

TEST_F(RequestTest, RefusesListsThatDoNotFit) {
  EXPECT_THAT(Refused({.input = three_, .output = six_}),
              AllOf(HasSubstr("all-reduce (sum) of 3 float32"),
                    HasSubstr("the output has 6 elements, not 3")));
  EXPECT_THAT(Refused({.collective = Collective::kReduce,
                       .input = three_,
                       .output = next_three_}),
              HasSubstr("this rank has no output"));
  EXPECT_THAT(Refused({.collective = Collective::kBroadcast, .input = three_}),
              HasSubstr("this rank has no input"));
  EXPECT_THAT(Refused({.collective = Collective::kAllGather,
                       .input = three_,
                       .output = six_}),
              HasSubstr("the output has 6 elements, not 3 times 3"));
  EXPECT_THAT(Refused({.collective = Collective::kReduceScatter,
                       .input = six_,
                       .output = three_}),
              HasSubstr("the input has 6 elements, not 3 times 3"));
  EXPECT_THAT(Refused({.collective = Collective::kBarrier, .input = three_}),
              HasSubstr("this rank has no input"));
}

TEST_F(RequestTest, RefusesMemoryThatCannotBe) {
  const Span none[] = {{nullptr, 4}};
  EXPECT_THAT(Refused({.input = none, .output = none}),
              HasSubstr("has no memory"));
  const Span odd[] = {{reinterpret_cast<char*>(memory_) + 1, 4}};
  EXPECT_THAT(Refused({.input = odd, .output = odd}),
              HasSubstr("is not aligned to 4 bytes"));
  const Span large[] = {{memory_, UINT64_MAX / 4}};
  EXPECT_THAT(Refused({.input = large, .output = large}),
              HasSubstr("is too large"));
  const Span shifted[] = {{memory_ + 1, 3}};
  EXPECT_THAT(Refused({.input = three_, .output = shifted}),
              HasSubstr("the input overlaps the output"));
  EXPECT_THAT(Refused({.type = Type::kInt16,
                       .op = ReduceOp::kMean,
                       .input = three_,
                       .output = three_}),
              HasSubstr("only floats have a mean"));
  EXPECT_THAT(Refused({.type = Type::kBool,
                       .op = ReduceOp::kMean,
                       .input = three_,
                       .output = three_}),
              AllOf(HasSubstr("all-reduce (mean) of 3 bool"),
                    HasSubstr("only floats have a mean")));
}

TEST_F(RequestTest, RefusesSplitsThatDoNotFit) {
  const auto refused = [&](std::vector<uint64_t> splits) {
    return Refused({.collective = Collective::kAllToAll,
                    .input = three_,
                    .output = six_,
                    .input_splits = splits});
  };
  EXPECT_EQ(refused({0, 3, 0}), "");
  EXPECT_THAT(refused({3}), HasSubstr("has 1 splits for 3 ranks"));
  EXPECT_THAT(refused({3, 1, 0}), HasSubstr("less than its splits"));
  EXPECT_THAT(refused({UINT64_MAX, 4, 0}), HasSubstr("less than its splits"));
  EXPECT_THAT(refused({1, 1, 0}), HasSubstr("1 more than its splits"));
  const Span four[] = {{memory_, 4}};
  EXPECT_THAT(
      Refused(
          {.collective = Collective::kAllToAll, .input = four, .output = six_}),
      HasSubstr("does not divide by 3 ranks"));
}

TEST(SplitMatrixTest, FindsPiecesInChunks) {
  // Rank 0 sends 2 and 3, rank 1 sends 1 and 0.
  const SplitMatrix splits(2, {2, 3, 2, 1, 1, 0, 3, 0});
  EXPECT_EQ(splits.Check(), OkStatus());
  EXPECT_EQ(splits.LargestInput(), 5u);
  const auto piece = splits.PieceIn(0, 1, 1, 2);
  EXPECT_EQ(piece.skip, 1u);
  EXPECT_EQ(piece.to, 0u);
  EXPECT_EQ(piece.count, 1u);
  EXPECT_EQ(splits.PieceIn(1, 0, 0, 5).to, 2u);
  EXPECT_EQ(splits.PieceIn(1, 1, 0, 5).count, 0u);
}

TEST(SplitMatrixTest, NamesTheFirstThatDiffers) {
  const SplitMatrix splits(2, {2, 3, 2, 1, 1, 0, 4, 0});
  EXPECT_EQ(Message(splits.Check()),
            "rank 0 sends 3 elements to rank 1, which expects 4");
}

TEST(ErrorsTest, SayWhatThisRankWasDoing) {
  const Status gone =
      During(WithReason(Unavailable("rank 1 is gone"), "X"), "barrier");
  EXPECT_EQ(Message(gone), "rank 1 is gone, during barrier");
  EXPECT_EQ(ReasonOf(gone), "X");
  EXPECT_EQ(During(gone, "barrier"), gone);
  EXPECT_EQ(Message(During(Aborted("stop"), "barrier")), "stop");
  EXPECT_EQ(WithoutLabel("group: stop", "group"), "stop");
  EXPECT_EQ(WithoutLabel("groups: stop", "group"), "groups: stop");
}

}  // namespace
}  // namespace lockstep::worker::process_group
