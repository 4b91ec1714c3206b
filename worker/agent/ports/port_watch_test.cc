#include "worker/agent/ports/port_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "common/os/tcp_sockets.h"

namespace lockstep::worker::agent {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

constexpr char kTcp[] =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when "
    "retrnsmt   uid  timeout inode\n"
    "   0: 0100007F:4E20 00000000:0000 0A 00000000:00000000 00:00000000 "
    "00000000     0        0 1234 1 0000000000000000 100 0 0 10 0\n"
    "   1: 00000000:4E21 00000000:0000 07 00000000:00000000 00:00000000 "
    "00000000     0        0 1235 1 0000000000000000 100 0 0 10 0\n"
    "   2: 0100007F:4E21 0100007F:9999 01 00000000:00000000 00:00000000 "
    "00000000     0        0 1236 1 0000000000000000 100 0 0 10 0\n"
    "   3: 0100007F:4E21 00000000:0000 0A 00000000:00000000 00:00000000 "
    "00000000     0        0 1237 1 0000000000000000 100 0 0 10 0\n";

TEST(PortWatchTest, OnlyListenersOnThePortsCount) {
  EXPECT_THAT(ParseListeners(kTcp, {20000, 20001}),
              ElementsAre(Listener{20000, 1234}, Listener{20001, 1237}));
  EXPECT_THAT(ParseListeners(kTcp, {20000}),
              ElementsAre(Listener{20000, 1234}));
  EXPECT_THAT(ParseListeners(kTcp, {}), IsEmpty());
  EXPECT_THAT(ParseListeners("", {20000}), IsEmpty());
  EXPECT_THAT(ParseListeners("0: x 0A\n1: A:4E20 B:0 0A 1", {20000}),
              IsEmpty());
}

TEST(PortWatchTest, AListenerIsFoundWithWhoHoldsIt) {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size),
            0);
  const int32_t port = ntohs(address.sin_port);
  // Bound, and not listening.
  EXPECT_THAT(ReadListeners({port}), IsEmpty());
  ASSERT_EQ(listen(fd.get(), 1), 0);
  const auto listeners = ReadListeners({port});
  ASSERT_THAT(listeners, SizeIs(1));
  EXPECT_EQ(listeners[0].port, port);
  EXPECT_THAT(SocketsOf(getpid()), Contains(listeners[0].inode));
  ProcessStat self;
  self.pid = getpid();
  self.command = "a\nname";
  const std::string who = fmt::format("process {} (a?name)", getpid());
  const std::string unknown = "a process that this daemon may not inspect";
  const uint64_t inode = listeners[0].inode;
  // Of all of them at once; 0 is no socket's.
  EXPECT_THAT(HoldersOf({0, inode}, {self}),
              ElementsAre(Pair(0, unknown), Pair(inode, who)));
  // Whoever comes first is named.
  ProcessStat twin = self;
  twin.command = "twin";
  EXPECT_THAT(HoldersOf({inode}, {self, twin}), ElementsAre(Pair(inode, who)));
  EXPECT_THAT(HoldersOf({inode}, {}), ElementsAre(Pair(inode, unknown)));
  EXPECT_THAT(HoldersOf({}, {self}), IsEmpty());
}

}  // namespace
}  // namespace lockstep::worker::agent
