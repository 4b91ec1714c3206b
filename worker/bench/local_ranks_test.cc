#include "worker/bench/local_ranks.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace lockstep::worker::bench {
namespace {

MonoTime In(int milliseconds) {
  return MonotonicNow() + std::chrono::milliseconds(milliseconds);
}

TEST(StoreTest, ProcessesFindEachOthersValues) {
  const auto store = SharedRendezvousStore::Create();
  ASSERT_TRUE(store.ok()) << store.status();
  const int code = RunRanks(4, 1, [&](int rank) {
    const std::string value(1000 + rank, static_cast<char>('a' + rank));
    if (!(*store)->Put("key" + std::to_string(rank), value).ok()) return 3;
    for (int peer = 0; peer < 4; ++peer) {
      const auto got = (*store)->Get("key" + std::to_string(peer), In(10'000));
      if (!got.ok()) return 4;
      const std::string want(1000 + peer, static_cast<char>('a' + peer));
      if (*got != want) return 5;
    }
    return 0;
  });
  EXPECT_EQ(code, 0);
}

TEST(StoreTest, ManyWritersLoseNothing) {
  const auto store = SharedRendezvousStore::Create();
  ASSERT_TRUE(store.ok()) << store.status();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        EXPECT_TRUE((*store)->Put(fmt::format("{}/{}", t, i), "x").ok());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (int t = 0; t < 4; ++t) {
    for (int i = 0; i < 500; i += 100) {
      EXPECT_TRUE((*store)->Get(fmt::format("{}/{}", t, i), In(0)).ok());
    }
  }
}

TEST(StoreTest, AMissingKeyIsTold) {
  const auto store = SharedRendezvousStore::Create();
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->Get("none", In(1)).status().code(),
            StatusCode::kDeadlineExceeded);
}

TEST(LaunchTest, TheFirstFailureEndsTheOthers) {
  EXPECT_EQ(RunRanks(2, 0,
                     [](int rank) {
                       if (rank == 0) return 7;
                       std::this_thread::sleep_for(std::chrono::hours(1));
                       return 0;
                     }),
            7);
}

}  // namespace
}  // namespace lockstep::worker::bench
