// Who else may come to a rank's port, and harms nobody.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <vector>

#include "common/base/fd.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "worker/collective/tcp/auth.h"
#include "worker/collective/tcp/tcp_test_util.h"

namespace lockstep::worker::collective::tcp {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

int ConnectTo(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
      0) {
    close(fd);
    return -1;
  }
  return fd;
}

// Tells who listens where before the ranks learn it of each other.
class SpyingStore final : public RendezvousStore {
 public:
  explicit SpyingStore(std::function<void(uint16_t port)> spy)
      : spy_(std::move(spy)) {}
  Status Put(const std::string& key, std::string_view value) override {
    if (key.rfind("tcp/place/", 0) == 0) {
      int rank = 0;
      int size = 0;
      char address[64];
      unsigned port = 0;
      EXPECT_EQ(std::sscanf(std::string(value).c_str(), "LTCP1 %d %d %63s %u",
                            &rank, &size, address, &port),
                4);
      spy_(static_cast<uint16_t>(port));
    }
    return store_.Put(key, value);
  }
  StatusOr<std::string> Get(const std::string& key,
                            MonoTime deadline) override {
    return store_.Get(key, deadline);
  }

 private:
  MapRendezvousStore store_;
  const std::function<void(uint16_t port)> spy_;
};

TEST(StrangerTest, DoesNotHarmForming) {
  signal(SIGPIPE, SIG_IGN);
  Mutex mu;
  std::vector<Fd> strangers;
  SpyingStore store([&](uint16_t port) {
    MutexLock lock(&mu);
    // One that says nothing, one that leaves, many with garbage, some that say
    // that they are rank 0 and cannot prove it, and half a word.
    strangers.emplace_back(ConnectTo(port));
    Fd(ConnectTo(port)).Reset();
    for (int i = 0; i < 200; ++i) {
      strangers.emplace_back(ConnectTo(port));
      const std::string garbage = RandomBytes(1 + i * 7 % 300);
      (void)!send(strangers.back().get(), garbage.data(), garbage.size(),
                  MSG_NOSIGNAL);
    }
    for (int i = 0; i < 20; ++i) {
      strangers.emplace_back(ConnectTo(port));
      Hello hello = MakeHello(0, 1 + i % 3);
      std::string said(reinterpret_cast<const char*>(&hello), sizeof(hello));
      said += RandomBytes(sizeof(Proof));
      if (i % 2 == 1) said.resize(20);
      (void)!send(strangers.back().get(), said.data(), said.size(),
                  MSG_NOSIGNAL);
    }
  });
  const MonoTime start = MonotonicNow();
  SpawnRanks(4, [&](int rank) {
    auto c = FormTcp(TcpOptions(rank, 4, &store));
    ASSERT_TRUE(c.ok()) << c.status();
    const Operation reduce = FloatsOf(c->get(), 100000);
    EXPECT_TRUE(collective::Run(c->get(), reduce, kLong).ok());
  });
  EXPECT_LT(MonotonicNow() - start, seconds(20));
  EXPECT_GT(strangers.size(), 600u);
}

TEST(StrangerTest, FindsNoPortOnceFormed) {
  std::atomic<uint16_t> port{0};
  SpyingStore store([&](uint16_t p) { port = p; });
  SpawnRanks(2, [&](int rank) {
    auto c = FormTcp(TcpOptions(rank, 2, &store));
    ASSERT_TRUE(c.ok()) << c.status();
    EXPECT_TRUE(collective::Run(c->get(), kBarrier, kLong).ok());
    EXPECT_EQ(ConnectTo(port), -1);
    EXPECT_TRUE(collective::Run(c->get(), kBarrier, kLong).ok());
  });
}

TEST(StrangerTest, WithAnotherKeyIsRefusedAndNamed) {
  MapRendezvousStore store;
  std::array<Status, 3> ends;
  const MonoTime start = MonotonicNow();
  SpawnRanks(3, [&](int rank) {
    auto options = TcpOptions(rank, 3, &store);
    if (rank == 1) options.key = "the key of generation 0";
    ends[rank] = FormTcp(options).status();
  });
  EXPECT_LT(MonotonicNow() - start, seconds(8));
  int named = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const Status& end = ends[rank];
    if (end.code() == StatusCode::kUnauthenticated) {
      ++named;
      EXPECT_THAT(Message(end), HasSubstr("does not have the key of rank"));
      EXPECT_THAT(Message(end), HasSubstr("rank 1"));
    } else {
      // The others have gone already.
      EXPECT_EQ(end.code(), StatusCode::kUnavailable) << end;
    }
  }
  EXPECT_GE(named, 1);
}

}  // namespace
}  // namespace lockstep::worker::collective::tcp
