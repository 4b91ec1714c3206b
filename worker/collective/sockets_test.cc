#include "worker/collective/sockets.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

namespace lockstep::worker::collective {
namespace {

bool WithinHost(const std::string& local, const std::string& remote) {
  const auto a = ParseAddress(local);
  const auto b = ParseAddress(remote);
  EXPECT_TRUE(a.ok() && b.ok());
  SocketEnds ends = {*a, *b};
  // In IPv6, too, the port is at this place.
  reinterpret_cast<sockaddr_in&>(ends.local).sin_port = 17;
  reinterpret_cast<sockaddr_in&>(ends.remote).sin_port = 4;
  return IsWithinHost(ends);
}

TEST(SocketsTest, EqualAddressesAndThoseOfTheLoopbackAreWithinAHost) {
  EXPECT_TRUE(WithinHost("10.1.2.3", "10.1.2.3"));
  EXPECT_TRUE(WithinHost("127.0.0.1", "127.0.0.1"));
  EXPECT_TRUE(WithinHost("127.0.0.1", "127.3.0.2"));
  EXPECT_TRUE(WithinHost("::1", "::1"));
  EXPECT_TRUE(WithinHost("fd00::3", "fd00::3"));
}

TEST(SocketsTest, OthersAreNot) {
  EXPECT_FALSE(WithinHost("10.1.2.3", "10.1.2.4"));
  EXPECT_FALSE(WithinHost("127.0.0.1", "10.1.2.3"));
  EXPECT_FALSE(WithinHost("128.0.0.1", "127.0.0.1"));
  EXPECT_FALSE(WithinHost("fd00::3", "fd00::4"));
  EXPECT_FALSE(WithinHost("::1", "127.0.0.1"));
}

}  // namespace
}  // namespace lockstep::worker::collective
