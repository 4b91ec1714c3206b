#include "worker/agent/ports/rank_ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>
#include <utility>
#include <vector>

#include "worker/agent/ports/testing.h"

namespace lockstep::worker::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// Rank 0 is of the first task, rank 1 of the second.
LocalGang Gang(std::vector<int32_t> ports, int32_t master_port) {
  LocalGang gang;
  gang.assignment.spec.emplace();
  for (int32_t rank = 0; rank < 2; ++rank) {
    LocalTask task;
    task.ranks = {{rank, 0, {}}};
    gang.assignment.spec->tasks.push_back(task);
  }
  gang.status.ports = std::move(ports);
  gang.status.master_port = master_port;
  return gang;
}

class RankPortsTest : public testing::Test {
 protected:
  const RankRef first_{{"job", 1}, 0};
  const RankRef second_{{"job", 1}, 1};
  // Processes of ranks.
  std::vector<pid_t> own_;
  std::set<RankRef> ended_;
  RankPorts ports_{[this] { return own_; },
                   [this](const RankRef& ref) { return ended_.contains(ref); }};
};

TEST_F(RankPortsTest, RankZeroHoldsWhatBelongsToNoTask) {
  auto leases = LeasePorts(3, {{20000, 32000}});
  ASSERT_TRUE(leases.ok()) << leases.status();
  const int32_t a = (*leases)[0].port();
  const int32_t b = (*leases)[1].port();
  const int32_t master = (*leases)[2].port();
  ports_.SetLeases(first_.gang, *std::move(leases));
  const LocalGang gang = Gang({a, b}, master);
  EXPECT_THAT(ports_.Hold(first_, gang), SizeIs(4));  // Two of each lease.
  EXPECT_EQ(ports_.Of(first_), (std::set<int32_t>{a, master}));
  EXPECT_THAT(ports_.Hold(second_, gang), SizeIs(2));
  EXPECT_THAT(ports_.Of(second_), ElementsAre(b));

  // They come back for a rank that is started again.
  ports_.Release(first_.gang);
  EXPECT_TRUE(ports_.Restore(first_.gang, gang, 0));
  EXPECT_THAT(ports_.Hold(first_, gang), SizeIs(4));
}

TEST_F(RankPortsTest, AListenerOfNoRankTakesAPort) {
  const Fd listener = ListenOn(0, true);
  ASSERT_TRUE(listener);
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  ASSERT_EQ(
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size),
      0);
  const int32_t port = ntohs(address.sin_port);
  ports_.Adopt(first_, {port});
  EXPECT_TRUE(ports_.IsTaken(first_));
  const auto found = ports_.Watch();
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].port, port);
  EXPECT_EQ(found[0].rank, first_);
  EXPECT_THAT(ports_.Watch(), IsEmpty());  // It was reported.
  // Of a rank that has ended it is still known.
  ended_.insert(first_);
  EXPECT_TRUE(ports_.CheckEnded(first_).has_value());
  // A rank's own listener takes nothing.
  own_ = {getpid()};
  EXPECT_FALSE(ports_.IsTaken(first_));
}

TEST_F(RankPortsTest, APlainBinderIsNewOnce) {
  EXPECT_FALSE(ports_.IsPlainBinder("uid"));
  EXPECT_TRUE(ports_.AddPlainBinder("uid"));
  EXPECT_FALSE(ports_.AddPlainBinder("uid"));
  EXPECT_TRUE(ports_.IsPlainBinder("uid"));
}

}  // namespace
}  // namespace lockstep::worker::agent
