// All-to-alls over every backend that has them: who gets what, and how they end
// that cannot succeed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/collective/all_to_all_test_util.h"
#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/lost_peers.h"
#include "worker/collective/operation.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Duration kExchangeLimit = seconds(30);
// Of 4 bytes each; of all, enough for several rounds of every slot.
constexpr size_t kManyElements = kSanitized ? 100'000 : 1'000'000;

// Of 8 bytes each, from a rank to all: several rounds over hosts.
constexpr size_t kSeveralRounds = 4'000'000;

struct ExchangeSetup {
  const char* backend;
  int ranks;
};

// Forms the ranks on threads of their own and runs fn(communicator) on each.
void WithRanks(const ExchangeSetup& setup,
               const std::function<void(Communicator*)>& fn) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  SpawnRanks(setup.ranks, [&](int rank) {
    auto c = FormCommunicator(
        TestOptionsOf(setup.backend, rank, setup.ranks, &store));
    ASSERT_TRUE(c.ok()) << c.status();
    fn(c->get());
  });
}

class AllToAllTest : public ::testing::TestWithParam<ExchangeSetup> {};
INSTANTIATE_TEST_SUITE_P(
    Backends, AllToAllTest,
    ::testing::Values(ExchangeSetup{"self", 1}, ExchangeSetup{"shm", 2},
                      ExchangeSetup{"shm", 3}, ExchangeSetup{"shm", 5},
                      ExchangeSetup{"tcp", 2}, ExchangeSetup{"tcp", 3},
                      ExchangeSetup{"tcp", 5}, ExchangeSetup{"hierarchical", 4},
                      ExchangeSetup{"hierarchical", 6},
                      // Hosts with unequal numbers of ranks, or with one each,
                      // and one host.
                      ExchangeSetup{"hierarchical_001", 3},
                      ExchangeSetup{"hierarchical_011", 3},
                      ExchangeSetup{"hierarchical_00011", 5},
                      ExchangeSetup{"hierarchical_000112", 6},
                      ExchangeSetup{"hierarchical_012010", 6},
                      ExchangeSetup{"hierarchical_01", 2},
                      ExchangeSetup{"hierarchical_000", 3}),
    [](const auto& info) {
      return fmt::format("{}{}{}", info.param.backend,
                         std::strchr(info.param.backend, '_') ? "of" : "",
                         info.param.ranks);
    });

TEST_P(AllToAllTest, EveryPartGoesToItsRank) {
  const int n = GetParam().ranks;
  const std::vector<CountOf> all = {
      [](int, int) { return 0; },
      [](int, int) { return 1; },
      [](int, int) { return 3'000; },
      [](int from, int to) { return (from * 5 + to * 3) % 7 * 1'001; },
      // One rank to one other only, and more than all slots hold.
      [n](int from, int to) {
        return from == n - 1 && to == 0 ? 3 * kManyElements : 0;
      },
      // Each rank to itself only.
      [](int from, int to) { return from == to ? 70'001 + from : 0; },
      // One rank receives nearly all.
      [](int from, int to) { return to == 0 ? kManyElements + from : from; },
      [](int, int) { return kManyElements; },
  };
  WithRanks(GetParam(), [&](Communicator* c) {
    ASSERT_TRUE(c->HasAllToAll());
    for (size_t i = 0; i < all.size(); ++i) {
      for (const DataType type : {DataType::kInt8, DataType::kBfloat16,
                                  DataType::kFloat32, DataType::kInt64}) {
        const bool allocated = i % 2 == 0 && type == DataType::kFloat32;
        AllToAllCase one(c, all[i], type, allocated);
        ASSERT_EQ(collective::Run(c, one.operation(), kExchangeLimit),
                  OkStatus());
        ASSERT_EQ(one.Wrong(), "") << "case " << i << " of " << Name(type);
      }
    }
  });
}

TEST_P(AllToAllTest, RunsInTurnWithOtherOperations) {
  WithRanks(GetParam(), [&](Communicator* c) {
    const int n = c->size();
    const auto memory = c->AnyMemory();
    ASSERT_TRUE(memory.ok());
    const CountOf count_of = [](int from, int to) {
      return kManyElements / 4 + 1'000 * from + to;
    };
    AllToAllCase first(c, count_of, DataType::kInt16);
    AllToAllCase second(c, count_of, DataType::kInt32);
    for (int round = 0; round < 5; ++round) {
      std::vector<float> values(kManyElements / 2, 1);
      const Operation sum{.slice = AnySlice(*memory, values.data(),
                                            values.size(), DataType::kFloat32)};
      first.Fill();
      second.Fill();
      std::vector<std::unique_ptr<Work>> works;
      for (const Operation& operation :
           {first.operation(), sum, second.operation()}) {
        auto work = c->Start(operation);
        ASSERT_TRUE(work.ok()) << work.status();
        works.push_back(*std::move(work));
      }
      for (const auto& work : works) {
        ASSERT_EQ(work->Wait(MonotonicNow() + kExchangeLimit), OkStatus());
      }
      ASSERT_EQ(first.Wrong(), "");
      ASSERT_EQ(second.Wrong(), "");
      ASSERT_EQ(values[round], static_cast<float>(n));
      ASSERT_EQ(values.back(), static_cast<float>(n));
    }
  });
}

TEST_P(AllToAllTest, RefusesOwnMistakes) {
  WithRanks(GetParam(), [&](Communicator* c) {
    const auto refused = [&](const Operation& operation) {
      const Status status = collective::Run(c, operation, kExchangeLimit);
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      return Message(status);
    };
    AllToAllCase one(
        c, [](int, int) { return 5; }, DataType::kInt32);
    Operation wrong = one.operation();
    wrong.receives = {};
    EXPECT_THAT(refused(wrong), HasSubstr("has 0 parts for"));
    wrong = one.operation();
    std::vector<PeerPart> parts(wrong.sends.begin(), wrong.sends.end());
    wrong.sends = parts;
    parts.back().data = static_cast<char*>(parts.back().data) + 1;
    EXPECT_THAT(refused(wrong), HasSubstr("not aligned to int32"));
    parts.back().data = nullptr;
    EXPECT_THAT(refused(wrong), HasSubstr("not aligned"));
    parts.back() = one.operation().sends.back();
    parts[c->rank()].count = 4;
    EXPECT_THAT(refused(wrong), HasSubstr("has 4 elements for rank"));
    if (c->size() > 1) {
      wrong = one.operation();
      wrong.slice.count -= 1;
      EXPECT_THAT(refused(wrong), HasSubstr("all-to-all of up to"));
    }
    // It sent no message.
    ASSERT_EQ(collective::Run(c, one.operation(), kExchangeLimit), OkStatus());
    EXPECT_EQ(one.Wrong(), "");
  });
}

TEST(LargeAllToAllTest, GoesOverHostsInRounds) {
  for (const ExchangeSetup& setup :
       {ExchangeSetup{"hierarchical", 4}, ExchangeSetup{"hierarchical_001", 3},
        ExchangeSetup{"hierarchical_000112", 6}}) {
    // One rank has nothing for another one; no round divides the others.
    const size_t most = kSeveralRounds / static_cast<size_t>(setup.ranks);
    const CountOf count_of = [most](int from, int to) {
      return from == 1 && to == 2 ? 0 : most - 5 * from - to;
    };
    WithRanks(setup, [&](Communicator* c) {
      AllToAllCase one(c, count_of, DataType::kInt64);
      ASSERT_EQ(collective::Run(c, one.operation(), kExchangeLimit),
                OkStatus());
      ASSERT_EQ(one.Wrong(), "") << setup.backend;
    });
  }
}

TEST(NoAllToAllTest, IsRefusedByBackendsWithout) {
  // Not all ranks, or not all hosts, are connected with each other.
  for (const ExchangeSetup& setup :
       {ExchangeSetup{"tcp", 17},
        ExchangeSetup{"hierarchical_00123456789abcdefg", 18}}) {
    WithRanks(setup, [&](Communicator* c) {
      EXPECT_FALSE(c->HasAllToAll());
      AllToAllCase one(
          c, [](int, int) { return 5; }, DataType::kInt32);
      const Status status = collective::Run(c, one.operation(), kExchangeLimit);
      EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
      EXPECT_TRUE(one.Untouched());
      EXPECT_EQ(collective::Run(c, {.kind = CollectiveKind::kBarrier},
                                kExchangeLimit),
                OkStatus());
    });
  }
}

class AllToAllEndTest : public ::testing::TestWithParam<const char*> {
 protected:
  FormedRanks Form(int n) {
    return FormedRanks(n, [n](int rank, RendezvousStore* store) {
      return FormCommunicator(TestOptionsOf(GetParam(), rank, n, store));
    });
  }

  // Rank `odd` runs another operation than the others.
  void RunWithOdd(int odd, size_t count,
                  const std::function<void(Operation*)>& change) {
    // All have formed before one of them may find the difference and break the
    // communicator.
    FormedRanks ranks = Form(4);
    ASSERT_EQ(ranks.status(), OkStatus());
    std::atomic<bool> found{false};
    SpawnRanks(4, [&](int rank) {
      Communicator* const c = ranks[rank];
      AllToAllCase one(
          c, [&](int, int) { return count; }, DataType::kInt32);
      if (rank == odd) change(&one.operation());
      const Status status = collective::Run(c, one.operation(), kExchangeLimit);
      // A rank that only hears of it hears that a peer has gone.
      EXPECT_THAT(status.code(), AnyOf(StatusCode::kFailedPrecondition,
                                       StatusCode::kUnavailable))
          << status;
      if (absl::IsFailedPrecondition(status)) {
        found = true;
        EXPECT_THAT(Message(status),
                    AllOf(HasSubstr("all-to-all of up to"), HasSubstr("rank")));
      }
      EXPECT_EQ(c->Start(one.operation()).status(), status);
    });
    EXPECT_TRUE(found);
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, AllToAllEndTest,
                         ::testing::Values("shm", "tcp", "hierarchical",
                                           "hierarchical_0012",
                                           "hierarchical_0001"),
                         [](const auto& info) { return info.param; });

TEST_P(AllToAllEndTest, AnotherOperationIsNamedOnAllRanks) {
  const std::vector<std::function<void(Operation*)>> changes = {
      [](Operation* o) { o->slice.count += 1; },
      [](Operation* o) { o->slice.type = DataType::kFloat32; },
      [](Operation* o) { o->part_of = WordsOf(Operation{}); },
      [](Operation* o) { *o = {.kind = CollectiveKind::kBarrier}; },
  };
  for (const size_t count : {size_t{10}, kManyElements}) {
    for (const auto& change : changes) {
      for (const int odd : {1, 3}) RunWithOdd(odd, count, change);
    }
  }
}

TEST_P(AllToAllEndTest, ALateRankIsNamedAndNothingIsTouchedLater) {
  FormedRanks ranks = Form(4);
  ASSERT_EQ(ranks.status(), OkStatus());
  AllToAllCase one(
      ranks[0], [](int, int) { return kManyElements; }, DataType::kInt32);
  AllToAllCase other(
      ranks[1], [](int, int) { return kManyElements; }, DataType::kInt32);
  auto work = ranks[0]->Start(one.operation());
  ASSERT_TRUE(work.ok());
  auto theirs = ranks[1]->Start(other.operation());
  ASSERT_TRUE(theirs.ok());
  // Time enough for what the two have for each other.
  const Status status = (*work)->Wait(MonotonicNow() + seconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(Message(status),
              ContainsRegex("waiting for ranks? ([0-9]+, )*[23]"));
  work->reset();
  one.Fill();
  EXPECT_FALSE((*theirs)->Wait(MonotonicNow() + kExchangeLimit).ok());
  theirs->reset();
  AllToAllCase late(
      ranks[2], [](int, int) { return kManyElements; }, DataType::kInt32);
  EXPECT_FALSE(
      collective::Run(ranks[2], late.operation(), kExchangeLimit).ok());
  EXPECT_TRUE(one.Untouched());
}

class AllToAllProcessTest : public AllToAllEndTest {
 protected:
  static constexpr int kRanks = 4;
  static constexpr Duration kSoonEnough = seconds(5);

  int Loop(RankBoard* board, int rank) {
    signal(SIGPIPE, SIG_IGN);
    DirectoryRendezvousStore store(board->dir());
    auto c = FormCommunicator(TestOptionsOf(GetParam(), rank, kRanks, &store));
    if (!c.ok()) return 100;
    AllToAllCase one(
        c->get(),
        [](int from, int to) { return kManyElements + from * 1'000 + to; },
        DataType::kFloat32);
    return board->RunUntilError(c->get(), rank, one.operation());
  }

  RankBoard board_;
};
INSTANTIATE_TEST_SUITE_P(Backends, AllToAllProcessTest,
                         ::testing::Values("shm", "tcp", "hierarchical",
                                           "hierarchical_0012",
                                           "hierarchical_0111"),
                         [](const auto& info) { return info.param; });

TEST_P(AllToAllProcessTest, SurvivorsOfAKillAreTold) {
  for (const int victim : {0, 1, 3}) {
    RankBoard board;
    RankProcesses ranks(kRanks, [&](int rank) { return Loop(&board, rank); });
    ASSERT_TRUE(AwaitTrue([&] { return board.AllMade(kRanks, 2); }));
    const MonoTime start = MonotonicNow();
    ranks.Signal(victim, SIGKILL);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(ranks.Join(rank, start + kExchangeLimit),
                static_cast<int>(StatusCode::kUnavailable));
      EXPECT_LT(board.EndedAfter(rank, start), kSoonEnough)
          << rank << " without " << victim;
    }
  }
}

TEST_P(AllToAllProcessTest, AFrozenPeerIsLeftByAbort) {
  RankProcesses ranks(kRanks, [&](int rank) { return Loop(&board_, rank); });
  ASSERT_TRUE(AwaitTrue([&] { return board_.AllMade(kRanks, 2); }));
  ranks.Signal(3, SIGSTOP);
  ASSERT_TRUE(board_.AwaitStill(3));
  const MonoTime start = MonotonicNow();
  board_->abort = true;
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(ranks.Join(rank, start + kExchangeLimit),
                AnyOf(static_cast<int>(StatusCode::kAborted),
                      static_cast<int>(StatusCode::kUnavailable)));
    EXPECT_LT(board_.EndedAfter(rank, start), kSoonEnough) << rank;
  }
  ranks.Signal(3, SIGCONT);
  EXPECT_THAT(ranks.Join(3, MonotonicNow() + kExchangeLimit),
              AnyOf(static_cast<int>(StatusCode::kUnavailable),
                    static_cast<int>(StatusCode::kAborted)));
}

TEST_P(AllToAllProcessTest, APeerThatDiedIsNamedAsLost) {
  // On unequal hosts a third rank, which is connected with one of them only.
  const int all = std::strchr(GetParam(), '_') != nullptr ? 3 : 2;
  const auto count_of = [](int, int) { return kManyElements; };
  DirectoryRendezvousStore store(board_.dir());
  RankProcesses peers(all - 1, [&](int other) {
    const int rank = other + 1;
    auto c = FormCommunicator(TestOptionsOf(GetParam(), rank, all, &store));
    if (!c.ok()) return 1;
    AllToAllCase one(c->get(), count_of, DataType::kInt32);
    if (!collective::Run(c->get(), one.operation(), kExchangeLimit).ok()) {
      return 1;
    }
    ++board_->word;
    if (rank == 1 && AwaitTrue([&] { return board_->word == all; })) {
      raise(SIGKILL);  // Without a goodbye.
    }
    return board_.RunUntilError(c->get(), rank, one.operation());
  });
  auto c = FormCommunicator(TestOptionsOf(GetParam(), 0, all, &store));
  ASSERT_TRUE(c.ok()) << c.status();
  AllToAllCase one(c->get(), count_of, DataType::kInt32);
  EXPECT_EQ(collective::Run(c->get(), one.operation(), kExchangeLimit),
            OkStatus());
  EXPECT_EQ(one.Wrong(), "");
  ++board_->word;
  EXPECT_EQ(peers.Join(0, MonotonicNow() + kExchangeLimit), 128 + SIGKILL);
  const Status status =
      collective::Run(c->get(), one.operation(), kExchangeLimit);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(LostPeersOf(status), ElementsAre(1)) << status;
  if (all > 2) {
    EXPECT_EQ(peers.Join(1, MonotonicNow() + kExchangeLimit),
              static_cast<int>(StatusCode::kUnavailable));
  }
}

}  // namespace
}  // namespace lockstep::worker::collective
