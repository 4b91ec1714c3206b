// Ranks that run different operations are told so, both of them by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "worker/collective/operation.h"
#include "worker/collective/tcp/tcp_test_util.h"

namespace lockstep::worker::collective::tcp {
namespace {

using ::testing::HasSubstr;

// Rank `odd` runs `other` where the rest run `common`.
void ExpectMismatch(int n, int odd, const Operation& common,
                    const Operation& other, size_t bytes) {
  SCOPED_TRACE(fmt::format("{} ranks, {} runs {}, the others {}", n, odd,
                           Describe(other), Describe(common)));
  TcpRanks ranks(n);
  std::vector<Status> ends(n);
  const MonoTime start = MonotonicNow();
  SpawnRanks(n, [&](int rank) {
    Operation operation = rank == odd ? other : common;
    auto buffer = ranks[rank]->Allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    operation.slice.buffer = *buffer;
    ends[rank] = collective::Run(ranks[rank], operation, kLong);
    // Where it ended before others found out, the next does not.
    if (!ends[rank].ok()) return;
    ends[rank] = collective::Run(ranks[rank], kBarrier, kLong);
  });
  EXPECT_LT(MonotonicNow() - start, kSoon);
  int named = 0;
  for (int rank = 0; rank < n; ++rank) {
    EXPECT_FALSE(ends[rank].ok()) << rank;
    if (ends[rank].code() != StatusCode::kFailedPrecondition) {
      EXPECT_EQ(ends[rank].code(), StatusCode::kUnavailable) << ends[rank];
      continue;
    }
    ++named;
    EXPECT_THAT(Message(ends[rank]),
                HasSubstr("the ranks do not run the same operations: rank"));
    EXPECT_THAT(Message(ends[rank]), HasSubstr(fmt::format("rank {}", odd)));
  }
  EXPECT_GE(named, 1);
}

TEST(TcpMismatchTest, IsRefusedByASentenceThatNamesBoth) {
  TcpRanks ranks(2);
  std::array<Status, 2> ends;
  SpawnRanks(2, [&](int rank) {
    const Operation operation = FloatsOf(ranks[rank], rank == 0 ? 100 : 101);
    ends[rank] = collective::Run(ranks[rank], operation, kLong);
  });
  EXPECT_TRUE(ends[0].code() == StatusCode::kFailedPrecondition ||
              ends[1].code() == StatusCode::kFailedPrecondition);
  for (int rank = 0; rank < 2; ++rank) {
    if (ends[rank].code() == StatusCode::kUnavailable) continue;
    EXPECT_EQ(
        Message(ends[rank]),
        fmt::format("job test g1: all-reduce of {} float32: the ranks do not "
                    "run the same operations: rank {} runs operation 2, "
                    "all-reduce (sum) of {} float32, and rank {} operation 2, "
                    "all-reduce (sum) of {} float32",
                    100 + rank, rank, 100 + rank, 1 - rank, 101 - rank));
  }
}

TEST(TcpMismatchTest, OfKindTypeArithmeticCountRootAndWhole) {
  const size_t bytes = 8 << 20;
  Operation common{.slice = {nullptr, 0, 8000, DataType::kFloat32}};
  std::vector<Operation> others(7, common);
  others[0].kind = CollectiveKind::kBarrier;
  others[1].kind = CollectiveKind::kBroadcast;
  others[1].root = 1;
  others[2].slice.type = DataType::kInt32;
  others[3].op = ReduceOp::kMax;
  // Another algorithm.
  others[4].slice.count = 800000;
  others[5].slice.count = 0;
  others[6].part_of = WordsOf(common);
  for (const Operation& other : others) {
    for (const int n : {2, 5, 8}) {
      for (const int odd : {0, n - 2}) {
        ExpectMismatch(n, odd, common, other, bytes);
        ExpectMismatch(n, odd, other, common, bytes);
      }
    }
  }
  Operation broadcast = others[1];
  broadcast.root = 0;
  for (const int n : {4, 7}) ExpectMismatch(n, 2, others[1], broadcast, bytes);
}

}  // namespace
}  // namespace lockstep::worker::collective::tcp
