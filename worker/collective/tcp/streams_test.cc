// Several connections with each peer: what goes over them, how many there are,
// and how they end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "worker/collective/sockets.h"
#include "worker/collective/tcp/plan.h"
#include "worker/collective/tcp/tcp_test_util.h"

namespace lockstep::worker::collective::tcp {
namespace {

std::string PlanWith(int ranks, int streams) {
  Plan plan = MakePlan(ranks, HostSharing::kAll);
  plan.streams = streams;
  plan.ahead = 8;
  return PlanLine(plan, ranks);
}

// Of each connected TCP socket of this process, the bytes that it has sent.
std::vector<uint64_t> BytesSent() {
  std::vector<uint64_t> sent;
  for (const int fd : OpenSockets()) {
    SocketEnds ends;
    tcp_info info{};
    socklen_t size = sizeof(info);
    if (!GetEnds(fd, &ends) ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
      continue;
    }
    sent.push_back(info.tcpi_bytes_acked);
  }
  return sent;
}

TEST(StreamsTest, LargeTransfersAreSpreadEvenly) {
  constexpr size_t kBytes = 12 << 20;
  constexpr int kStreams = 3;
  TcpRanks ranks(2, PlanWith(2, kStreams));
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kBroadcast}) {
    const std::vector<uint64_t> before = BytesSent();
    ASSERT_EQ(before.size(), 2u * kStreams);
    SpawnRanks(2, [&](int rank) {
      Operation operation = FloatsOf(ranks[rank], kBytes / 4);
      operation.kind = kind;
      const Status status = collective::Run(ranks[rank], operation, kLong);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_TRUE(collective::Run(ranks[rank], kBarrier, kLong).ok());
    });
    const std::vector<uint64_t> after = BytesSent();
    ASSERT_EQ(after.size(), before.size());
    size_t busy = 0;
    for (size_t i = 0; i < after.size(); ++i) {
      const uint64_t sent = after[i] - before[i];
      if (sent > kBytes / kStreams * 9 / 10) ++busy;
      EXPECT_LT(sent, kBytes / kStreams * 11 / 10);
    }
    // A broadcast goes in one direction.
    EXPECT_EQ(busy, kind == CollectiveKind::kAllReduce ? 2u * kStreams
                                                       : size_t{kStreams});
  }
}

TEST(StreamsTest, ThereAreAFewForEachOfManyRanks) {
  constexpr int kRanks = 64;
  constexpr int kStreams = 2;
  const int before = CountEntries("/proc/self/fd");
  {
    TcpRanks ranks(kRanks, PlanWith(kRanks, kStreams));
    ASSERT_TRUE(ranks.status().ok());
    const int each = (CountEntries("/proc/self/fd") - before) / kRanks;
    // Two neighbours in the ring, six of recursive halving, some of them the
    // same; and one to be woken by.
    EXPECT_LE(each, kStreams * 8 + 1);
    EXPECT_GE(each, kStreams * 6);
    SpawnRanks(kRanks, [&](int rank) {
      const Operation operation = FloatsOf(ranks[rank], 100000);
      auto* const data = static_cast<float*>(operation.slice.buffer->data);
      std::fill(data, data + 100000, 1.0f);
      const Status status = collective::Run(ranks[rank], operation, kLong);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(data[99999], kRanks);
    });
  }
  EXPECT_EQ(CountEntries("/proc/self/fd"), before);
}

TEST(StreamsTest, AbortEndsAllOfThem) {
  const int before = CountEntries("/proc/self/fd");
  for (int round = 0; round < 5; ++round) {
    TcpRanks ranks(3, PlanWith(3, 4));
    std::atomic<int> steps{0};
    std::vector<MonoTime> ended(3);
    MonoTime start;
    std::thread aborter([&] {
      EXPECT_TRUE(AwaitTrue([&] { return steps >= 4; }));
      std::this_thread::sleep_for(std::chrono::milliseconds(round));
      start = MonotonicNow();
      ranks[round % 3]->Abort("stop");
    });
    SpawnRanks(3, [&](int rank) {
      const Operation operation = FloatsOf(ranks[rank], 2 << 20);
      Status status;
      while (status.ok()) {
        status = collective::Run(ranks[rank], operation, kLong);
        ++steps;
      }
      EXPECT_EQ(status.code(), rank == round % 3 ? StatusCode::kAborted
                                                 : StatusCode::kUnavailable)
          << status;
      ended[rank] = MonotonicNow();
    });
    aborter.join();
    for (const MonoTime end : ended) EXPECT_LT(end - start, kSoon);
  }
  EXPECT_EQ(CountEntries("/proc/self/fd"), before);
}

TEST(StreamsTest, OneThatLeavesInOrderHarmsNobody) {
  for (int round = 0; round < 5; ++round) {
    WithRanks(
        4,
        [&](Communicator* c) {
          const Operation operation = FloatsOf(c, 1 << 20);
          for (int i = 0; i < 2; ++i) {
            const Status status = collective::Run(c, operation, kLong);
            EXPECT_TRUE(status.ok()) << status;
          }
        },
        PlanWith(4, 4));
  }
}

TEST(StreamsTest, OtherPlansAreTakenWhileFormed) {
  TcpRanks ranks(3);
  const std::string one = ranks[0]->ReductionPlan();
  for (const std::string& plan : {PlanWith(3, 4), PlanWith(3, 2), one}) {
    SpawnRanks(3, [&](int rank) {
      const Status status =
          ranks[rank]->FollowPlan(plan, MonotonicNow() + kLong);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(ranks[rank]->ReductionPlan(), plan);
      const Status sum =
          collective::Run(ranks[rank], FloatsOf(ranks[rank], 1 << 20), kLong);
      EXPECT_TRUE(sum.ok()) << sum;
    });
    const auto parsed = ParsePlan(plan, 3);
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(BytesSent().size(), 3u * 2 * parsed->streams);
  }
  // A mistake leaves everything as it was.
  EXPECT_EQ(ranks[0]->FollowPlan(PlanWith(4, 2), MonotonicNow() + kLong).code(),
            StatusCode::kInvalidArgument);
  SpawnRanks(3, [&](int rank) {
    EXPECT_TRUE(collective::Run(ranks[rank], kBarrier, kLong).ok());
  });
}

}  // namespace
}  // namespace lockstep::worker::collective::tcp
