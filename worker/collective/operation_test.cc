#include "worker/collective/operation.h"

#include <gtest/gtest.h>

#include <limits>

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
