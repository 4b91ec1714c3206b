// Connections that say nothing, handshakes that never end, callers that never
// stop: workers' heartbeats come through, and nothing grows without end.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "common/base/fd.h"
#include "tests/security/raw_call.h"
#include "tests/security/tls_socket.h"
#include "tests/service/fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOCKSTEP_SLOW_BUILD 1
#else
#define LOCKSTEP_SLOW_BUILD 0
#endif

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

constexpr int kIdle = LOCKSTEP_SLOW_BUILD ? 100 : 1'000;
constexpr int kHalf = 100;
constexpr Duration kLease = LOCKSTEP_SLOW_BUILD ? 20s : 6s;
// A connection that was greeted costs gRPC and OpenSSL less than this.
constexpr int64_t kMaxBytesEach = 256 << 10;

class FloodTest : public server::ServiceTest {
 protected:
  void SetUp() override {
    server_options_.handshake_timeout = 2s;
    // Less than any machine asks for.
    server_options_.limits.calls_per_second = 50;
    server_options_.limits.burst = 100;
    server_options_.limits.open_streams = 8;
    server::ServiceTest::SetUp();
    rlimit files{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_cur < 2 * kIdle + 500) GTEST_SKIP() << "too few files";
  }

  Fd Connect() {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address),
                        sizeof(address)),
              0)
        << strerror(errno);
    return fd;
  }
  // Whether the server closes it by `deadline`.
  static bool ClosedBy(const Fd& fd, MonoTime deadline) {
    char buffer[4096];
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(
          deadline - MonotonicNow());
      if (left.count() <= 0) return false;
      pollfd waited{fd.get(), POLLIN, 0};
      if (::poll(&waited, 1, static_cast<int>(left.count())) != 1) continue;
      if (::recv(fd.get(), buffer, sizeof(buffer), MSG_DONTWAIT) <= 0) {
        return true;
      }
    }
  }

  // Beats as a worker does until it is told to stop; remembers the longest
  // wait for an answer.
  class Heart {
   public:
    explicit Heart(const std::shared_ptr<grpc::Channel>& channel)
        : daemon_(channel) {
      registered_ = daemon_.Register("node-a");
      thread_ = std::thread([this] { Loop(); });
    }
    ~Heart() { Stop(); }
    void Stop() {
      stop_ = true;
      if (thread_.joinable()) thread_.join();
    }
    bool registered() const { return registered_; }
    bool broken() const { return broken_; }
    int beats() const { return beats_; }
    Duration longest() const { return Duration(longest_.load()); }

   private:
    void Loop() {
      for (uint64_t sequence = 2; !stop_; ++sequence) {
        const MonoTime sent = MonotonicNow();
        if (!daemon_.Beat(sequence) ||
            !daemon_.Read(v1::CoordinatorMessage::kHeartbeatAck)) {
          broken_ = true;
          return;
        }
        const Duration took = MonotonicNow() - sent;
        longest_ = std::max(longest_.load(), took.count());
        ++beats_;
        // A worker's own pace, only faster.
        ::poll(nullptr, 0, 20);
      }
    }

    server::DaemonStream daemon_;
    bool registered_ = false;
    std::atomic<bool> stop_ = false;
    std::atomic<bool> broken_ = false;
    std::atomic<int> beats_ = 0;
    std::atomic<int64_t> longest_ = 0;
    std::thread thread_;
  };

  void ExpectWell(Heart* heart) {
    // A flood may be over before so many beats are.
    const MonoTime deadline = MonotonicNow() + server::kPatience;
    while (heart->registered() && !heart->broken() && heart->beats() <= 5 &&
           MonotonicNow() < deadline) {
      ::poll(nullptr, 0, 5);
    }
    heart->Stop();
    EXPECT_TRUE(heart->registered());
    EXPECT_FALSE(heart->broken());
    EXPECT_GT(heart->beats(), 5);
    EXPECT_LT(heart->longest(), kLease / 2) << FormatDuration(heart->longest());
  }
};

TEST_F(FloodTest, IdleConnectionsOfFriends) {
  Heart heart(Worker("node-a"));
  (void)Get("warm");  // What is allocated once is.
  const pki::Credentials ann =
      CredentialsOf(UserIdentity("test", pki::UserRole::kViewer, "ann"));
  const SslContext context = ContextOf(ann);
  ASSERT_NE(context, nullptr);
  std::vector<Fd> sockets;
  std::vector<SslPtr> connections;
  const int64_t before = ResidentBytes();
  for (int i = 0; i < kIdle; ++i) {
    sockets.push_back(Connect());
    SslPtr ssl(SSL_new(context.get()), SSL_free);
    SSL_set_fd(ssl.get(), sockets.back().get());
    ASSERT_EQ(SSL_connect(ssl.get()), 1) << i;
    connections.push_back(std::move(ssl));
  }
  const int64_t grown = ResidentBytes() - before;
  printf("%lld KiB a connection, both ends\n",
         static_cast<long long>((grown >> 10) / kIdle));
  if (!LOCKSTEP_SLOW_BUILD) {
    EXPECT_LT(grown, kIdle * kMaxBytesEach);
  }
  EXPECT_EQ(Get("absent").status().code(), StatusCode::kNotFound);
  ExpectWell(&heart);
}

TEST_F(FloodTest, HandshakesThatNeverEnd) {
  Heart heart(Worker("node-a"));
  // The first bytes of a ClientHello: record type, version, length.
  const std::string part("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  const struct {
    const char* name;
    std::string bytes;
  } cases[] = {
      {"silence", ""},
      {"half a ClientHello", part},
      {"plain text", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"HTTP/2 without TLS", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
      {"garbage", std::string(4096, '\xff')},
  };
  for (const auto& c : cases) {
    std::vector<Fd> sockets;
    for (int i = 0; i < kHalf; ++i) {
      sockets.push_back(Connect());
      if (!c.bytes.empty()) {
        (void)!::send(sockets.back().get(), c.bytes.data(), c.bytes.size(),
                      MSG_NOSIGNAL);
      }
    }
    EXPECT_EQ(Get("absent").status().code(), StatusCode::kNotFound) << c.name;
    // The server's patience, and some for a slow machine.
    const MonoTime deadline = MonotonicNow() + 10s;
    int closed = 0;
    for (const Fd& fd : sockets) closed += ClosedBy(fd, deadline) ? 1 : 0;
    EXPECT_EQ(closed, kHalf) << c.name;
  }
  ExpectWell(&heart);
}

TEST_F(FloodTest, ACallerThatNeverStops) {
  Heart heart(Worker("node-a"));
  std::atomic<int> served = 0;
  std::atomic<int> refused = 0;
  std::atomic<int> other = 0;
  std::vector<std::thread> threads;
  const MonoTime end = MonotonicNow() + 2s;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      // More connections do not help.
      const auto channel = User("eve", pki::UserRole::kViewer);
      const auto stub = v1::JobService::NewStub(channel);
      while (MonotonicNow() < end) {
        const auto context = server::Context();
        v1::ListJobsResponse response;
        const Status status =
            FromGrpc(stub->ListJobs(context.get(), {}, &response));
        if (status.ok()) {
          ++served;
        } else if (status.code() == StatusCode::kResourceExhausted) {
          ++refused;
        } else {
          ++other;
        }
      }
    });
  }
  // Everybody else is served as ever.
  for (int i = 0; i < 20; ++i) {
    const MonoTime asked = MonotonicNow();
    EXPECT_EQ(Get("absent").status().code(), StatusCode::kNotFound);
    EXPECT_LT(MonotonicNow() - asked, kLease / 2);
  }
  for (std::thread& thread : threads) thread.join();
  printf("%d served, %d refused\n", served.load(), refused.load());
  EXPECT_EQ(other, 0);
  EXPECT_GT(refused, 0);
  // The burst, and two seconds and a bit of the rate.
  EXPECT_LE(served, 100 + 50 * 4);
  ExpectWell(&heart);
  // It is forgiven.
  const MonoTime deadline = MonotonicNow() + 10s;
  const auto stub =
      v1::JobService::NewStub(User("eve", pki::UserRole::kViewer));
  const auto list = [&] {
    return server::Answer<v1::ListJobsResponse>(
        [&](auto* context, auto* response) {
          return stub->ListJobs(context, {}, response);
        });
  };
  while (!list().ok()) ASSERT_LT(MonotonicNow(), deadline);
}

TEST_F(FloodTest, StreamsThatStayOpen) {
  Heart heart(Worker("node-a"));
  const auto stub =
      v1::JobService::NewStub(User("eve", pki::UserRole::kViewer));
  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::WatchJobsResponse>> reader;
  };
  std::vector<std::unique_ptr<Watch>> watches;
  const auto open = [&]() -> Status {
    auto watch = std::make_unique<Watch>();
    watch->context.set_deadline(std::chrono::system_clock::now() +
                                server::kPatience);
    watch->reader = stub->WatchJobs(&watch->context, {});
    v1::WatchJobsResponse first;
    if (!watch->reader->Read(&first)) {
      return FromGrpc(watch->reader->Finish());
    }
    watches.push_back(std::move(watch));
    return OkStatus();
  };
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(open().ok()) << i;
  const Status refused = open();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted) << refused;
  EXPECT_NE(Message(refused).find("8 streams open"), std::string::npos)
      << refused;
  // Of another it takes nothing, and what is ended may be opened again.
  EXPECT_EQ(Get("absent").status().code(), StatusCode::kNotFound);
  for (auto& watch : watches) watch->context.TryCancel();
  for (auto& watch : watches) (void)watch->reader->Finish();
  watches.clear();
  const MonoTime deadline = MonotonicNow() + server::kPatience;
  while (!open().ok()) ASSERT_LT(MonotonicNow(), deadline);
  for (auto& watch : watches) {
    watch->context.TryCancel();
    (void)watch->reader->Finish();
  }
  ExpectWell(&heart);
}

}  // namespace
}  // namespace lockstep
