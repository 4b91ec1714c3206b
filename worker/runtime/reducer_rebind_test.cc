// A reducer goes from one communicator to the next: real backends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <barrier>
#include <memory>
#include <string>
#include <vector>

#include "worker/collective/address_range.h"
#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/handshake.h"
#include "worker/collective/testing.h"
#include "worker/runtime/reducer_test_util.h"

namespace lockstep::worker::runtime {
namespace {

using collective::AddressRange;
using collective::Communicator;
using collective::MapRendezvousStore;
using std::chrono::seconds;
using ::testing::Each;

constexpr int kReboundRanks = 4;

class RebindTest : public ::testing::TestWithParam<const char*> {
 protected:
  RebindTest() { ::signal(SIGPIPE, SIG_IGN); }

  // As a generation forms, or a recovery.
  static std::unique_ptr<Communicator> Form(int rank, MapRendezvousStore* store,
                                            AddressRange* addresses) {
    collective::CommunicatorOptions options =
        collective::TestOptionsOf(GetParam(), rank, kReboundRanks, store);
    options.addresses = addresses;
    // Two ranks on a host of their own each, and two that share one.
    options.host = rank < 2 ? "shared" : "host-" + std::to_string(rank);
    if (std::string(GetParam()) == "shm") options.host = "shared";
    StatusOr<std::unique_ptr<Communicator>> formed =
        collective::FormCommunicator(options);
    EXPECT_TRUE(formed.ok()) << formed.status();
    return *std::move(formed);
  }
  static void Measure(Communicator* communicator, size_t bytes) {
    EXPECT_TRUE(communicator->Allocate(bytes).ok());
    EXPECT_TRUE(
        collective::Handshake(
            communicator,
            {.label = "test", .spec_hash = "s", .key = "k", .config = {}},
            MonotonicNow() + seconds(20))
            .ok());
  }
  static void Step(ReducingRank* rank, int64_t step) {
    EXPECT_EQ(rank->reducer->step(), step);
    rank->Fill(1);
    const StatusOr<StepResult> result = rank->reducer->Finish({});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->apply);
    for (size_t i = 0; i < rank->reducer->parameters(); ++i) {
      EXPECT_THAT(rank->reducer->gradient(i), Each(kReboundRanks));
    }
    EXPECT_TRUE(rank->reducer->Commit().ok());
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, RebindTest,
                         ::testing::Values("shm", "tcp", "hierarchical"),
                         [](const auto& info) { return info.param; });

TEST_P(RebindTest, GradientsKeepTheirAddresses) {
  MapRendezvousStore first;
  MapRendezvousStore second;
  std::barrier all(kReboundRanks);
  RunRanks(kReboundRanks, [&](int r) {
    auto addresses = *AddressRange::Reserve(size_t{64} << 20);
    std::unique_ptr<Communicator> communicator =
        Form(r, &first, addresses.get());
    // What a generation does before it has gradients, a recovery does not.
    Measure(communicator.get(), 3 << 20);
    ReducingRank rank(std::move(communicator));
    auto* const reducer = static_cast<RecoverableReducer*>(rank.reducer.get());
    Step(&rank, 1);
    std::vector<const float*> before;
    for (size_t i = 0; i < reducer->parameters(); ++i) {
      before.push_back(reducer->gradient(i).data());
    }
    // In the middle of a step, which all have begun.
    all.arrive_and_wait();
    rank.Fill(7);
    EXPECT_TRUE(reducer->Ready(2).ok());
    all.arrive_and_wait();
    rank.communicator->Abort("rank 9 is gone");
    EXPECT_TRUE(reducer->Unbind().ok());
    const std::string agreed = reducer->Agreed();
    rank.communicator.reset();
    rank.communicator = Form(r, &second, addresses.get());
    const Status bound =
        reducer->Rebind(rank.communicator.get(),
                        MembersWithout({}, rank.communicator->size(), r));
    ASSERT_TRUE(bound.ok()) << bound;
    Measure(rank.communicator.get(), 8 << 20);
    const StatusOr<StepOrders> orders = reducer->Resume(agreed, 5, 6);
    ASSERT_TRUE(orders.ok()) << orders.status();
    for (size_t i = 0; i < reducer->parameters(); ++i) {
      EXPECT_EQ(reducer->gradient(i).data(), before[i]);
      EXPECT_THAT(reducer->gradient(i), Each(0));
    }
    Step(&rank, 2);
    Step(&rank, 3);
    rank.reducer.reset();
    rank.communicator.reset();
  });
}

TEST(RebindFakeTest, MemoryElsewhereIsAnError) {
  FakeGroup group(1);
  FakeGroup other(1);
  ReducingRank rank(&group, 0);
  auto* const reducer = static_cast<RecoverableReducer*>(rank.reducer.get());
  EXPECT_TRUE(reducer->Unbind().ok());
  const auto next = other.Make(0);
  EXPECT_EQ(reducer->Rebind(next.get(), Membership()).code(),
            StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lockstep::worker::runtime
