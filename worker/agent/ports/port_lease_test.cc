#include "worker/agent/ports/port_lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "worker/agent/ports/testing.h"

namespace lockstep::worker::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(PortRangeTest, IsWhatTheKernelSays) {
  EXPECT_EQ(ParsePortRange("32768\t60999\n").value(),
            (PortRange{32768, 60999}));
  for (const char* text : {"", "1", "a b", "5 4", "0 5", "1 70000"}) {
    EXPECT_FALSE(ParsePortRange(text).ok()) << text;
  }
}

TEST(PortRangeTest, LeasesKeepOutOfTheEphemeralRange) {
  EXPECT_THAT(LeasableRanges({32768, 60999}),
              ElementsAre(PortRange{10000, 32767}, PortRange{61000, 65535}));
  EXPECT_THAT(LeasableRanges({1024, 65535}), IsEmpty());
  EXPECT_THAT(LeasableRanges({1024, 20000}),
              ElementsAre(PortRange{20001, 65535}));
}

class PortLeaseTest : public testing::Test {
 protected:
  const std::vector<PortRange> ranges_{{20000, 32000}};
};

TEST_F(PortLeaseTest, LeasedPortsAreDistinctAndExclusive) {
  auto leases = LeasePorts(5, ranges_);
  ASSERT_TRUE(leases.ok()) << leases.status();
  for (const PortLease& lease : *leases) {
    EXPECT_EQ(PortLease::Take(lease.port()).status().code(),
              StatusCode::kAlreadyExists);
    EXPECT_EQ(PortLease::Adopt(lease.port()).status().code(),
              StatusCode::kAlreadyExists);
  }
}

TEST_F(PortLeaseTest, StrangersAreKeptOutAndTheProgramMayBind) {
  auto leases = LeasePorts(1, ranges_);
  ASSERT_TRUE(leases.ok()) << leases.status();
  const PortLease& lease = leases->front();
  EXPECT_FALSE(ListenOn(lease.port(), /*reuse=*/false));
  EXPECT_TRUE(ListenOn(lease.port(), /*reuse=*/true));
}

TEST_F(PortLeaseTest, APortThatIsNotHeldIsBoundWithoutReuse) {
  auto leases = LeasePorts(1, ranges_);
  ASSERT_TRUE(leases.ok()) << leases.status();
  PortLease& lease = leases->front();
  lease.LetBind();
  EXPECT_EQ(lease.fds().size(), 1u);
  EXPECT_EQ(PortLease::Take(lease.port()).status().code(),
            StatusCode::kAlreadyExists)
      << "other daemons stay out";
  EXPECT_TRUE(ListenOn(lease.port(), /*reuse=*/false));
}

TEST_F(PortLeaseTest, WhoeverHoldsTheSocketsHoldsTheLease) {
  auto leases = LeasePorts(1, ranges_);
  ASSERT_TRUE(leases.ok()) << leases.status();
  const int32_t port = leases->front().port();
  std::vector<Fd> held;  // As a shim does.
  for (const int fd : leases->front().fds()) held.emplace_back(dup(fd));
  EXPECT_EQ(held.size(), 2u);
  leases->clear();
  EXPECT_EQ(PortLease::Adopt(port).status().code(), StatusCode::kAlreadyExists);
  EXPECT_FALSE(ListenOn(port, /*reuse=*/false));
  held.clear();
  EXPECT_TRUE(PortLease::Take(port).ok());
}

TEST_F(PortLeaseTest, AProgramThatListensAlreadyKeepsItsPort) {
  auto leases = LeasePorts(1, ranges_);
  ASSERT_TRUE(leases.ok()) << leases.status();
  const int32_t port = leases->front().port();
  leases->clear();
  const Fd listener = ListenOn(port, /*reuse=*/true);
  ASSERT_TRUE(listener);
  EXPECT_EQ(PortLease::Take(port).status().code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(PortLease::Adopt(port).ok());
}

TEST_F(PortLeaseTest, TooFewPortsAreSaidSoAndNoneIsKept) {
  auto one = LeasePorts(1, ranges_);
  ASSERT_TRUE(one.ok());
  const int32_t port = one->front().port();
  one->clear();
  const auto two = LeasePorts(2, {{port, port}});
  EXPECT_EQ(two.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(PortLease::Take(port).ok());
}

TEST(PortListTest, IsTakenInItsOrder) {
  const auto ranges = ParsePortList("21007,21003-21004");
  ASSERT_TRUE(ranges.ok()) << ranges.status();
  EXPECT_EQ(*ranges, (std::vector<PortRange>{{21007, 21007, true},
                                             {21003, 21004, true}}));
  const auto leases = LeasePorts(3, *ranges);
  // Somebody else's may be among them; the order stays.
  if (leases.ok()) {
    EXPECT_EQ((*leases)[0].port(), 21007);
    EXPECT_EQ((*leases)[1].port(), 21003);
    EXPECT_EQ((*leases)[2].port(), 21004);
  }
  for (const char* text : {"", "a", "5-", "5-3", "0", "70000", "1,,2", "1;2"}) {
    EXPECT_FALSE(ParsePortList(text).ok()) << text;
  }
}

}  // namespace
}  // namespace lockstep::worker::agent
