#include "worker/agent/port_lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lockstep {
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

// Listens on `port` of 127.0.0.1, or on one that the kernel chooses.
Fd Listen(int32_t port, bool reuse = false) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (reuse) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
          0 ||
      listen(fd.get(), 1) != 0) {
    return Fd();
  }
  return fd;
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
  EXPECT_FALSE(Listen(lease.port()));
  EXPECT_TRUE(Listen(lease.port(), /*reuse=*/true));
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
  EXPECT_FALSE(Listen(port));
  held.clear();
  EXPECT_TRUE(PortLease::Take(port).ok());
}

TEST_F(PortLeaseTest, AProgramThatListensAlreadyKeepsItsPort) {
  auto leases = LeasePorts(1, ranges_);
  ASSERT_TRUE(leases.ok()) << leases.status();
  const int32_t port = leases->front().port();
  leases->clear();
  const Fd listener = Listen(port, /*reuse=*/true);
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

}  // namespace
}  // namespace lockstep
