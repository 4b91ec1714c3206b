// What ranks say that they wait for, over every backend that tells.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/peer_wait.h"
#include "worker/collective/self_communicator.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective {
namespace {

constexpr Duration kTestLimit = std::chrono::seconds(30);

TEST(CurrentPeerWaitTest, AWaitIsCountedAndItsPeerMayChange) {
  CurrentPeerWait wait;
  EXPECT_EQ(wait.Get(), PeerWait());
  wait.Begin(2);
  EXPECT_EQ(wait.Get(), (PeerWait{true, 2, 1}));
  wait.SetPeer(3);
  EXPECT_EQ(wait.Get(), (PeerWait{true, 3, 1}));
  wait.End();
  EXPECT_EQ(wait.Get(), (PeerWait{false, -1, 1}));
  wait.Begin(-1);
  EXPECT_EQ(wait.Get(), (PeerWait{true, -1, 2}));
}

TEST(CurrentPeerWaitTest, ItReadsAsText) {
  EXPECT_EQ(DescribePeer(PeerWait()), "");
  EXPECT_EQ(DescribePeer(PeerWait{true, -1, 1}), "its peers");
  EXPECT_EQ(DescribePeer(PeerWait{true, 4, 1}), "rank 4");
}

TEST(CurrentWaitTest, ARankThatIsAloneDoesNotTell) {
  EXPECT_FALSE(MakeSelfCommunicator("job")->CurrentWait());
}

struct WaitSetup {
  const char* backend;
  int ranks;
};

class CurrentWaitTest : public ::testing::TestWithParam<WaitSetup> {
 protected:
  CurrentWaitTest()
      : ranks_(GetParam().ranks, [](int rank, RendezvousStore* store) {
          return FormCommunicator(
              TestOptionsOf(GetParam().backend, rank, GetParam().ranks, store));
        }) {}

  std::vector<PeerWait> Waits() {
    std::vector<PeerWait> waits;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      waits.push_back(ranks_[rank]->CurrentWait().value());
    }
    return waits;
  }

  // Whether the waits of all others lead to `late`, and stay as they are for
  // `time`.
  bool AllLeadTo(int late, Duration time) {
    const std::vector<PeerWait> waits = Waits();
    if (waits[late].waiting) return false;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      int at = rank;
      for (int hops = 0; at != late && hops < ranks_.size(); ++hops) {
        if (waits[at].rank < 0) return false;
        at = waits[at].rank;
      }
      if (at != late) return false;
    }
    std::this_thread::sleep_for(time);
    return waits == Waits();
  }

  Status AllReduce(int rank, size_t count) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* buffer,
                              ranks_[rank]->Allocate(count * sizeof(float)));
    return collective::Run(ranks_[rank],
                           {.slice = {buffer, 0, count, DataType::kFloat32}},
                           kTestLimit);
  }

  FormedRanks ranks_;
};
INSTANTIATE_TEST_SUITE_P(Backends, CurrentWaitTest,
                         ::testing::Values(WaitSetup{"shm", 2},
                                           WaitSetup{"shm", 4},
                                           WaitSetup{"tcp", 2},
                                           WaitSetup{"tcp", 5},
                                           WaitSetup{"hierarchical_0011", 4},
                                           WaitSetup{"hierarchical_00112", 5},
                                           WaitSetup{"hierarchical_012", 3}),
                         [](const auto& info) {
                           return std::string(info.param.backend) + "_" +
                                  std::to_string(info.param.ranks);
                         });

TEST_P(CurrentWaitTest, TheWaitsLeadToTheLateRank) {
  ASSERT_EQ(ranks_.status(), OkStatus());
  for (const size_t count : {size_t{16}, size_t{1} << 20}) {
    for (int late = 0; late < ranks_.size(); ++late) {
      SCOPED_TRACE(testing::Message() << count << " elements, rank " << late);
      std::vector<Status> ended(ranks_.size());
      std::vector<std::thread> threads;
      for (int rank = 0; rank < ranks_.size(); ++rank) {
        if (rank == late) continue;
        threads.emplace_back(
            [&, rank] { ended[rank] = AllReduce(rank, count); });
      }
      // A rank sleeps for half a second at most, and its wait goes on.
      const Duration time =
          std::chrono::milliseconds(late == 0 && count == 16 ? 1100 : 20);
      EXPECT_TRUE(AwaitTrue([&] { return AllLeadTo(late, time); }));
      ended[late] = AllReduce(late, count);
      for (std::thread& thread : threads) thread.join();
      for (const Status& status : ended) EXPECT_EQ(status, OkStatus());
      for (const PeerWait& wait : Waits()) EXPECT_FALSE(wait.waiting);
    }
  }
}

}  // namespace
}  // namespace lockstep::worker::collective
