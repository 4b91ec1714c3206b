#include "worker/collective/operation.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace lockstep::worker::collective {
namespace {

TEST(OperationWordsTest, AreOfWhatMustBeEqual) {
  const Operation sum{.slice = {.offset = 3, .count = 10}};
  Operation other = sum;
  other.slice.offset = 5;
  other.root = 1;
  EXPECT_EQ(WordsOf(other), WordsOf(sum));
  const auto differs = [&](auto change) {
    Operation changed = sum;
    change(&changed);
    EXPECT_NE(WordsOf(changed), WordsOf(sum));
    EXPECT_NE(WordsOf(changed), OperationWords());
  };
  differs([](Operation* o) { o->slice.count = 11; });
  differs([](Operation* o) { o->slice.type = DataType::kInt32; });
  differs([](Operation* o) { o->op = ReduceOp::kMax; });
  differs([](Operation* o) { o->kind = CollectiveKind::kReduceScatter; });
  differs([](Operation* o) { o->kind = CollectiveKind::kBarrier; });
  Operation broadcast{.kind = CollectiveKind::kBroadcast, .root = 1};
  Operation max = broadcast;
  max.op = ReduceOp::kMax;
  EXPECT_EQ(WordsOf(max), WordsOf(broadcast));
  Operation second = broadcast;
  second.root = 2;
  EXPECT_NE(WordsOf(second), WordsOf(broadcast));
}

TEST(OperationWordsTest, SayWhatTheyAre) {
  const Operation mean{.slice = {.count = 5, .type = DataType::kBfloat16},
                       .op = ReduceOp::kMean};
  EXPECT_EQ(Describe(WordsOf(mean)), "all-reduce (mean) of 5 bfloat16");
  const Operation broadcast{.kind = CollectiveKind::kBroadcast,
                            .slice = {.count = 4, .type = DataType::kInt32},
                            .root = std::numeric_limits<int>::max()};
  EXPECT_EQ(Describe(WordsOf(broadcast)),
            "broadcast of 4 int32 from rank 2147483647");
  EXPECT_EQ(WordsOf(broadcast).what >> 63, 0u);
  const Operation barrier{.kind = CollectiveKind::kBarrier};
  EXPECT_EQ(Describe(WordsOf(barrier)), "barrier");
  const Operation gather{.kind = CollectiveKind::kAllGather,
                         .slice = {.count = 2}};
  EXPECT_EQ(Describe(WordsOf(gather), WordsOf(mean)),
            "all-gather of 2 float32, part of all-reduce (mean) of 5 bfloat16");
  EXPECT_EQ(Describe(WordsOf(gather), {}), "all-gather of 2 float32");
}

TEST(OperationWordsTest, AllToAllsHaveTheirLargestInput) {
  Operation operation{.kind = CollectiveKind::kAllToAll,
                      .slice = {.count = 9, .type = DataType::kInt16}};
  EXPECT_EQ(Describe(WordsOf(operation)), "all-to-all of up to 9 int16");
  EXPECT_EQ(Describe(operation), "all-to-all of up to 9 int16");
  const OperationWords nine = WordsOf(operation);
  operation.slice.count = 8;
  EXPECT_NE(WordsOf(operation), nine);
}

TEST(AllToAllPartsTest, MustFit) {
  int32_t memory[8] = {};
  const Buffer any = AnyHostMemory();
  std::vector<PeerPart> sends = {{memory, 1}, {memory + 1, 2}};
  std::vector<PeerPart> receives = {{memory + 4, 1}, {memory + 5, 3}};
  Operation operation{.kind = CollectiveKind::kAllToAll,
                      .slice = {&any, 0, 3, DataType::kInt32},
                      .sends = sends,
                      .receives = receives};
  EXPECT_EQ(CheckOperation(operation, 2), OkStatus());
  EXPECT_EQ(CheckCounts(operation, 0), OkStatus());
  EXPECT_TRUE(absl::IsInvalidArgument(CheckOperation(operation, 3)));
  // Rank 1's own part would be what goes to rank 1.
  EXPECT_TRUE(absl::IsInvalidArgument(CheckCounts(operation, 1)));
  operation.slice.count = 2;
  EXPECT_TRUE(absl::IsInvalidArgument(CheckCounts(operation, 0)));
  operation.slice.count = SIZE_MAX / 8;
  sends[1].count = SIZE_MAX;
  EXPECT_TRUE(absl::IsInvalidArgument(CheckCounts(operation, 0)));
}

TEST(OperationWordsTest, SayWhatCallersMakeOfThem) {
  const ComposedOperation reduce{.kind = WordsKind::kReduce,
                                 .op = ReduceOp::kProduct,
                                 .type = DataType::kUint8,
                                 .of_bool = true,
                                 .root = 2,
                                 .count = 7};
  EXPECT_EQ(Describe(WordsOf(reduce)), "reduce (product) of 7 bool to rank 2");
  const auto text = [](WordsKind kind) {
    return Describe(WordsOf(ComposedOperation{
        .kind = kind, .type = DataType::kInt16, .root = 1, .count = 3}));
  };
  EXPECT_EQ(text(WordsKind::kScatter), "scatter of 3 int16 from rank 1");
  EXPECT_EQ(text(WordsKind::kGather), "gather of 3 int16 to rank 1");
  EXPECT_EQ(text(WordsKind::kAllToAll), "all-to-all of int16");
  const Operation sum{.slice = {.count = 3, .type = DataType::kInt16}};
  EXPECT_EQ(WordsOf(ComposedOperation{.type = DataType::kInt16, .count = 3}),
            WordsOf(sum));
}

TEST(OperationWordsTest, MayBeAnybodys) {
  for (uint64_t what = 0; what < 0x100; ++what) {
    for (const uint64_t rest : {uint64_t{0}, ~uint64_t{0xff}}) {
      EXPECT_FALSE(Describe({what | rest, ~uint64_t{0}}).empty());
    }
  }
  EXPECT_EQ(Describe(OperationWords()), "an unknown operation");
}

}  // namespace
}  // namespace lockstep::worker::collective
