// Order, cookies, threads and several groups.
#include "worker/process_group/process_group.h"

#include <algorithm>
#include <thread>

#include "worker/process_group/group_test_util.h"

namespace lockstep::worker::process_group {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Operation InPlace(const Span* span, uint64_t cookie = 0) {
  return {.input = {span, 1}, .output = {span, 1}, .cookie = cookie};
}

TEST(ProcessGroupTest, SaysWhichBackendItTook) {
  WithGroup("auto", 1, [](ProcessGroup* group) {
    EXPECT_EQ(group->Describe(), "backend self: there is one rank");
  });
  WithGroup("auto", 2, [](ProcessGroup* group) {
    EXPECT_THAT(group->Describe(), HasSubstr("backend shm: all 2 ranks"));
    EXPECT_EQ(group->size(), 2);
  });
}

TEST(ProcessGroupTest, RefusesOptionsThatCannotBe) {
  GroupOptions options;
  options.rank = 2;
  options.size = 2;
  EXPECT_TRUE(absl::IsInvalidArgument(ProcessGroup::Form(options).status()));
  options.rank = 0;
  EXPECT_THAT(Message(ProcessGroup::Form(options).status()),
              HasSubstr("rendezvous store"));
  options.size = 1;
  options.operation_timeout = Duration::zero();
  EXPECT_THAT(Message(ProcessGroup::Form(options).status()),
              HasSubstr("timeouts must be positive"));
}

TEST(ProcessGroupTest, RunsInTheOrderOfTheStarts) {
  for (const char* backend : {"shm", "tcp"}) {
    WithGroup(backend, 2, [](ProcessGroup* group) {
      float value = 1;
      const Span span{&value, 1};
      std::vector<std::shared_ptr<Work>> works;
      for (int i = 0; i < 20; ++i) {
        auto work = group->Start(InPlace(&span));
        ASSERT_TRUE(work.ok()) << work.status();
        works.push_back(*work);
      }
      // Behind them.
      ASSERT_EQ(group->Run(InPlace(&span)), OkStatus());
      EXPECT_EQ(value, 1 << 21);
      for (const auto& work : works) EXPECT_TRUE(work->ended());
    });
  }
}

TEST(ProcessGroupTest, CookiesComeInTheOrderOfTheEnds) {
  WithGroup("shm", 2, [](ProcessGroup* group) {
    std::vector<uint64_t> got;
    Status end;
    std::thread server([&] {
      std::vector<uint64_t> cookies(2);
      for (;;) {
        const auto count = group->NextEnded(Duration(-1), cookies);
        if (!count.ok()) {
          end = count.status();
          return;
        }
        got.insert(got.end(), cookies.begin(), cookies.begin() + *count);
      }
    });
    float value = 1;
    const Span span{&value, 1};
    for (uint64_t cookie = 1; cookie <= 5; ++cookie) {
      ASSERT_TRUE(group->Start(InPlace(&span, cookie % 3)).ok());
    }
    ASSERT_EQ(group->Run(InPlace(&span, 9)), OkStatus());
    // Both are past the last operation before one of them leaves.
    ASSERT_EQ(group->Run({.collective = Collective::kBarrier}), OkStatus());
    group->Abort("the end");
    server.join();
    EXPECT_TRUE(absl::IsAborted(end)) << end;
    EXPECT_THAT(got, ElementsAre(1, 2, 1, 2, 9));
  });
}

TEST(ProcessGroupTest, NoCookieInTime) {
  WithGroup("auto", 1, [](ProcessGroup* group) {
    std::vector<uint64_t> cookies(2);
    const auto count = group->NextEnded(Duration::zero(), cookies);
    ASSERT_TRUE(count.ok());
    EXPECT_EQ(*count, 0u);
  });
}

// Groups of ranks {0, 1, 2}, {0, 1} and {1, 2}, all at work at the same time.
TEST(ProcessGroupTest, GroupsWithCommonRanksDoNotWaitForEachOther) {
  signal(SIGPIPE, SIG_IGN);
  for (const char* backend : {"shm", "tcp"}) {
    const std::vector<std::vector<int>> members = {{0, 1, 2}, {0, 1}, {1, 2}};
    std::vector<std::shared_ptr<collective::MapRendezvousStore>> stores;
    for (size_t i = 0; i < members.size(); ++i) {
      stores.push_back(std::make_shared<collective::MapRendezvousStore>());
    }
    collective::SpawnRanks(3, [&](int rank) {
      std::vector<std::unique_ptr<ProcessGroup>> groups;
      std::vector<std::vector<float>> values;
      for (size_t i = 0; i < members.size(); ++i) {
        const auto& ranks = members[i];
        const auto me = std::find(ranks.begin(), ranks.end(), rank);
        if (me == ranks.end()) continue;
        auto group = ProcessGroup::Form(
            TestGroupOptions(backend, static_cast<int>(me - ranks.begin()),
                             static_cast<int>(ranks.size()), stores[i]));
        ASSERT_TRUE(group.ok()) << group.status();
        groups.push_back(*std::move(group));
        values.emplace_back(10'000, 1.0f);
      }
      // Rank 1 starts them in another order than the others.
      if (rank == 1) std::reverse(groups.begin(), groups.end());
      std::vector<std::shared_ptr<Work>> works;
      for (size_t i = 0; i < groups.size(); ++i) {
        const Span span{values[i].data(), values[i].size()};
        for (int round = 0; round < 5; ++round) {
          auto work = groups[i]->Start(InPlace(&span));
          ASSERT_TRUE(work.ok()) << work.status();
          works.push_back(*work);
        }
      }
      for (const auto& work : works) {
        ASSERT_EQ(work->Wait(Duration(-1)), OkStatus());
      }
      for (size_t i = 0; i < groups.size(); ++i) {
        const float want = groups[i]->size() == 3 ? 243 : 32;
        EXPECT_EQ(values[i][9'999], want);
      }
    });
  }
}

TEST(ProcessGroupTest, ManyThreadsMayCall) {
  // With one rank every order is the same on all ranks.
  WithGroup("auto", 1, [](ProcessGroup* group) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([group] {
        std::vector<float> values(100, 2);
        const Span span{values.data(), values.size()};
        for (int i = 0; i < 200; ++i) {
          ASSERT_EQ(group->Run(InPlace(&span)), OkStatus());
          const auto work = group->Start(InPlace(&span));
          ASSERT_TRUE(work.ok());
          ASSERT_EQ((*work)->Wait(Duration(-1)), OkStatus());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

// In the calling thread and in the group's by turns.
TEST(ProcessGroupTest, RunAndStartAlternate) {
  for (const char* backend : {"shm", "tcp", "hierarchical"}) {
    WithGroup(backend, 2, [](ProcessGroup* group) {
      std::vector<int64_t> values(128, 1);
      const Span span{values.data(), values.size()};
      Operation sum = InPlace(&span);
      sum.type = Type::kInt64;
      for (int i = 0; i < 30; ++i) {
        ASSERT_EQ(group->Run(sum), OkStatus());
        const auto work = group->Start(sum);
        ASSERT_TRUE(work.ok());
        ASSERT_EQ((*work)->Wait(Duration(-1)), OkStatus());
      }
      EXPECT_EQ(values[127], int64_t{1} << 60);
    });
  }
}

}  // namespace
}  // namespace lockstep::worker::process_group
