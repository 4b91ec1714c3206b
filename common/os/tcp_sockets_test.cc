#include "common/os/tcp_sockets.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "common/base/fd.h"

namespace lockstep {
namespace {

// Both ends of a connection on the loopback interface.
struct Connection {
  Fd listening, client, server;
  int32_t port = 0;
};

Connection Connect() {
  Connection made;
  made.listening = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(made.listening.get(), any, size), 0);
  EXPECT_EQ(listen(made.listening.get(), 1), 0);
  EXPECT_EQ(getsockname(made.listening.get(), any, &size), 0);
  made.port = ntohs(address.sin_port);
  made.client = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(made.client.get(), any, size), 0);
  made.server = Fd(accept(made.listening.get(), nullptr, nullptr));
  EXPECT_GE(made.server.get(), 0);
  return made;
}

uint64_t InodeOf(const Fd& fd) {
  char target[64];
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  const ssize_t size = readlink(path.c_str(), target, sizeof(target));
  return SocketInode({target, static_cast<size_t>(std::max<ssize_t>(size, 0))})
      .value_or(0);
}

std::optional<TcpSocket> Find(TcpKind kind, uint64_t inode) {
  const auto all = AskTcpSockets(kind);
  EXPECT_TRUE(all.has_value()) << "this kernel has no sock_diag";
  if (!all) return std::nullopt;
  for (const TcpSocket& socket : *all) {
    if (socket.inode == inode) return socket;
  }
  return std::nullopt;
}

TEST(TcpSocketsTest, TheInodeIsInTheLinkOfADescriptor) {
  EXPECT_EQ(SocketInode("socket:[4711]"), 4711u);
  EXPECT_EQ(SocketInode("/dev/null"), std::nullopt);
  EXPECT_EQ(SocketInode("socket:[x]"), std::nullopt);
  EXPECT_EQ(SocketInode("socket:[]"), std::nullopt);
}

TEST(TcpSocketsTest, AConnectionTellsItsPayload) {
  const Connection c = Connect();
  const std::string bytes(300'000, 'x');
  std::string read(1 << 16, 0);
  size_t sent = 0;
  size_t received = 0;
  while (received < bytes.size()) {
    const ssize_t out = send(c.client.get(), bytes.data() + sent,
                             bytes.size() - sent, MSG_DONTWAIT);
    if (out > 0) sent += static_cast<size_t>(out);
    const ssize_t in = recv(c.server.get(), read.data(), read.size(), 0);
    ASSERT_GT(in, 0);
    received += static_cast<size_t>(in);
  }
  const auto server = Find(TcpKind::kConnected, InodeOf(c.server));
  ASSERT_TRUE(server.has_value());
  EXPECT_NEAR(static_cast<double>(server->received_bytes), 300'000, 1);
  EXPECT_LE(server->sent_bytes, 1u);
  EXPECT_EQ(server->port, c.port);
  // The last acknowledgement may be delayed.
  const auto client = Find(TcpKind::kConnected, InodeOf(c.client));
  ASSERT_TRUE(client.has_value());
  EXPECT_GT(client->sent_bytes, 200'000u);
  EXPECT_LE(client->sent_bytes, 300'001u);
  EXPECT_NE(client->cookie, server->cookie);
}

TEST(TcpSocketsTest, EachKindHasItsOwn) {
  const Connection c = Connect();
  const auto listening = Find(TcpKind::kListening, InodeOf(c.listening));
  ASSERT_TRUE(listening.has_value());
  EXPECT_EQ(listening->port, c.port);
  EXPECT_FALSE(Find(TcpKind::kListening, InodeOf(c.client)).has_value());
  EXPECT_FALSE(Find(TcpKind::kConnected, InodeOf(c.listening)).has_value());
}

TEST(TcpSocketsTest, AProcessHasItsSockets) {
  const Connection c = Connect();
  const std::set<uint64_t> own = SocketsOf(getpid());
  for (const Fd* fd : {&c.listening, &c.client, &c.server}) {
    EXPECT_TRUE(own.contains(InodeOf(*fd)));
  }
  EXPECT_TRUE(SocketsOf(getpid(), 0).empty());
}

}  // namespace
}  // namespace lockstep
