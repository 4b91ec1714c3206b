#include "server/listen_check.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>

#include "common/base/fd.h"

namespace lockstep::server {
namespace {

TEST(ListenCheckTest, AFreePortIsFine) {
  EXPECT_TRUE(CheckCanListen("127.0.0.1:0").ok());
  EXPECT_TRUE(CheckCanListen("localhost:0").ok());
}

TEST(ListenCheckTest, ATakenPortIsNot) {
  const Fd taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(where);
  auto* const any = reinterpret_cast<sockaddr*>(&where);
  ASSERT_EQ(::bind(taken.get(), any, size), 0);
  ASSERT_EQ(::listen(taken.get(), 1), 0);
  ASSERT_EQ(::getsockname(taken.get(), any, &size), 0);
  const std::string address =
      "127.0.0.1:" + std::to_string(ntohs(where.sin_port));
  const Status status = CheckCanListen(address);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), testing::HasSubstr(address));
}

TEST(ListenCheckTest, AnothersAddressIsNot) {
  EXPECT_FALSE(CheckCanListen("192.0.2.1:0").ok());
  EXPECT_FALSE(CheckCanListen("nowhere").ok());
}

}  // namespace
}  // namespace lockstep::server
