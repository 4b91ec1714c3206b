// What clients may do to an HTTP server without harm to others.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <future>
#include <random>
#include <vector>

#include "common/base/mutex.h"
#include "common/http/http_test_util.h"
#include "common/http/metrics.h"
#include "common/http/server.h"

namespace lockstep::http {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr char kAsk[] = "GET /-/ready HTTP/1.1\r\nHost: localhost\r\n\r\n";

// For thousands of sockets in this process.
void AllowManyFiles() {
  rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

bool SendText(const Fd& fd, const std::string& text) {
  return ::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(text.size());
}

// Bytes until `end` has come, the connection has ended, or ten seconds.
std::string ReadUntil(const Fd& fd, const std::string& end) {
  std::string all;
  char c;
  while (!all.ends_with(end) && ::recv(fd.get(), &c, 1, 0) == 1) all += c;
  return all;
}

// Whether the server has ended the connection; waits for it up to ten seconds.
bool EndsSoon(const Fd& fd) {
  char c;
  errno = 0;
  const ssize_t got = ::recv(fd.get(), &c, 1, 0);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

class HttpLoadTest : public testing::Test {
 protected:
  HttpLoadTest() {
    options_.address = "127.0.0.1:0";
    options_.threads = 2;
    // Nothing below happens because a deadline has come.
    options_.limits.handshake = std::chrono::minutes(2);
    options_.limits.request = std::chrono::minutes(2);
    options_.limits.idle = std::chrono::minutes(2);
  }
  ~HttpLoadTest() override { Release(); }

  void Start() {
    auto server = HttpServer::Create(options_);
    ASSERT_TRUE(server.ok()) << Message(server.status());
    server_ = std::move(*server);
    AddStandardPages({.program = "x", .collectables = {}, .ready = nullptr},
                     server_.get());
    server_->Handle("/slow", [this](const HttpRequest&) {
      MutexLock lock(&mu_);
      ++waiting_;
      changed_.NotifyAll();
      while (!released_) changed_.Wait(&mu_);
      return HttpResponse{.body = "slow\n"};
    });
    server_->Handle("/large", [](const HttpRequest&) {
      return HttpResponse{.body = std::string(32 << 20, 'x')};
    });
    const Status started = server_->Start();
    ASSERT_TRUE(started.ok()) << Message(started);
  }

  void Release() {
    MutexLock lock(&mu_);
    released_ = true;
    changed_.NotifyAll();
  }
  void AwaitWaiting(int count) {
    MutexLock lock(&mu_);
    const MonoTime deadline = MonotonicNow() + std::chrono::seconds(20);
    while (waiting_ < count && changed_.WaitUntil(&mu_, deadline)) {
    }
    EXPECT_GE(waiting_, count);
  }

  // Every page, several times.
  void ExpectThatItAnswers() {
    for (int i = 0; i < 5; ++i) {
      for (const char* path : {"/metrics", "/-/healthy", "/-/ready"}) {
        EXPECT_THAT(Ask(server_->port(), "GET", path),
                    StartsWith("HTTP/1.1 200 "))
            << path;
      }
    }
  }

  Mutex mu_;
  CondVar changed_;
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;
  bool released_ ABSL_GUARDED_BY(mu_) = false;
  HttpServerOptions options_;
  // Before the server's handlers end, they are released: see the destructor.
  std::unique_ptr<HttpServer> server_;
};

class IdleSocketsTest : public HttpLoadTest,
                        public testing::WithParamInterface<int> {};

TEST_P(IdleSocketsTest, DelayNobody) {
  AllowManyFiles();
  Start();
  std::vector<Fd> idle;
  for (int i = 0; i < GetParam(); ++i) {
    idle.push_back(ConnectTo(server_->port()));
    // Some say nothing, some half a request, some asked once and stay.
    if (i % 3 == 1) SendText(idle.back(), "GET /metrics HTTP/1.1\r\nHost: loc");
    if (i % 3 == 2) SendText(idle.back(), kAsk);
  }
  ExpectThatItAnswers();
}

TEST_P(IdleSocketsTest, ThatDripDelayNobody) {
  AllowManyFiles();
  Start();
  std::vector<Fd> dripping;
  for (int i = 0; i < GetParam(); ++i) {
    dripping.push_back(ConnectTo(server_->port()));
  }
  std::atomic<bool> stop = false;
  auto drip = std::async(std::launch::async, [&] {
    const std::string head = "GET /metrics HTTP/1.1\r\nX-A: ";
    for (size_t at = 0; !stop; ++at) {
      int again = 0;
      for (Fd& fd : dripping) {
        const char c = at < head.size() ? head[at] : 'a';
        // Of those that were closed for others some come back.
        if (::send(fd.get(), &c, 1, MSG_NOSIGNAL) != 1 && ++again < 20) {
          fd = ConnectTo(server_->port());
        }
      }
      ::poll(nullptr, 0, 20);
    }
  });
  ExpectThatItAnswers();
  stop = true;
}

INSTANTIATE_TEST_SUITE_P(Sockets, IdleSocketsTest, testing::Values(64, 2000));

TEST_F(HttpLoadTest, ForANewcomerTheLongestIdleIsClosed) {
  options_.limits.connections_of_address = 4;
  Start();
  std::vector<Fd> idle;
  for (int i = 0; i < 4; ++i) idle.push_back(ConnectTo(server_->port()));
  // The first has asked since: the second is idle for longest.
  ASSERT_TRUE(SendText(idle[0], kAsk));
  EXPECT_THAT(ReadUntil(idle[0], "ready\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask(server_->port(), "GET", "/metrics"),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_TRUE(EndsSoon(idle[1]));
  for (const int i : {0, 2, 3}) {
    ASSERT_TRUE(SendText(idle[i], kAsk)) << i;
    EXPECT_THAT(ReadUntil(idle[i], "ready\n"), StartsWith("HTTP/1.1 200 "))
        << i;
  }
}

TEST_F(HttpLoadTest, SlowHandlersDoNotStopHealthy) {
  Start();
  std::vector<Fd> slow;
  for (int i = 0; i < 10; ++i) {
    slow.push_back(ConnectTo(server_->port()));
    ASSERT_TRUE(
        SendText(slow.back(), "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  }
  AwaitWaiting(2);
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(Ask(server_->port(), "GET", "/-/healthy"),
                StartsWith("HTTP/1.1 200 "));
  }
  Release();
  for (const Fd& fd : slow) {
    EXPECT_THAT(ReadUntil(fd, "slow\n"), StartsWith("HTTP/1.1 200 "));
  }
}

TEST_F(HttpLoadTest, EvenWhenAllWaitForHandlersANewcomerGetsIn) {
  options_.limits.connections_of_address = 4;
  Start();
  std::vector<Fd> slow;
  for (int i = 0; i < 4; ++i) {
    slow.push_back(ConnectTo(server_->port()));
    ASSERT_TRUE(
        SendText(slow.back(), "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  }
  AwaitWaiting(2);
  EXPECT_THAT(Ask(server_->port(), "GET", "/-/healthy"),
              StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpLoadTest, AConnectionServesManyRequests) {
  Start();
  const Fd fd = ConnectTo(server_->port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(SendText(fd, kAsk));
    const std::string answer = ReadUntil(fd, "ready\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
    EXPECT_THAT(answer, HasSubstr("Connection: keep-alive\r\n"));
  }
  // Also sent at once, and in pieces.
  ASSERT_TRUE(SendText(fd, std::string(kAsk) + kAsk + "GET /-/re"));
  EXPECT_THAT(ReadUntil(fd, "ready\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ReadUntil(fd, "ready\n"), StartsWith("HTTP/1.1 200 "));
  ASSERT_TRUE(SendText(fd, "ady HTTP/1.1\r\n\r\n"));
  EXPECT_THAT(ReadUntil(fd, "ready\n"), StartsWith("HTTP/1.1 200 "));
  ASSERT_TRUE(SendText(fd, "GET /-/ready HTTP/1.0\r\n\r\n"));
  EXPECT_THAT(ReadUntil(fd, "ready\n"), HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(EndsSoon(fd));
}

TEST_F(HttpLoadTest, ABodyEndsTheConnection) {
  Start();
  const std::string smuggled = kAsk;
  for (const std::string& head :
       {fmt::format("POST /metrics HTTP/1.1\r\nContent-Length: {}\r\n\r\n",
                    smuggled.size()),
        fmt::format("GET /nothing HTTP/1.1\r\nContent-Length: {}\r\n\r\n",
                    smuggled.size()),
        std::string("GET /nothing HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
                    "\r\n2b\r\n")}) {
    const std::string answer = Exchange(server_->port(), head + smuggled);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 40")) << head;
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n")) << head;
    EXPECT_EQ(answer.find("HTTP/1.1 200"), std::string::npos) << head;
  }
}

TEST_F(HttpLoadTest, AmbiguousOrMalformedRequestsAreRefused) {
  Start();
  for (const char* request :
       {"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        "GET /% HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET http://localhost/metrics HTTP/1.1\r\nConnection: close\r\n\r\n",
        "GET / HTTP/3.1\r\n\r\n", "GET /\r\n\r\n",
        "GET / HTTP/1.1\r\nno header\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"}) {
    EXPECT_THAT(Exchange(server_->port(), request), StartsWith("HTTP/1.1 400 "))
        << request;
  }
  EXPECT_THAT(Exchange(server_->port(),
                       "GET / HTTP/1.1\r\nX-A: " + std::string(70000, 'a')),
              StartsWith("HTTP/1.1 431 "));
}

TEST_F(HttpLoadTest, EachPhaseHasADeadline) {
  options_.limits.request = std::chrono::milliseconds(300);
  options_.limits.idle = std::chrono::milliseconds(300);
  options_.limits.answer = std::chrono::milliseconds(300);
  Start();
  const Fd silent = ConnectTo(server_->port());
  const Fd half = ConnectTo(server_->port());
  ASSERT_TRUE(SendText(half, "GET / HTTP/1.1\r\n"));
  const Fd again = ConnectTo(server_->port());
  ASSERT_TRUE(SendText(again, kAsk));
  EXPECT_THAT(ReadUntil(again, "ready\n"), StartsWith("HTTP/1.1 200 "));
  const Fd deaf = ConnectTo(server_->port());
  ASSERT_TRUE(SendText(deaf, "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  EXPECT_TRUE(EndsSoon(silent));
  EXPECT_TRUE(EndsSoon(half));
  EXPECT_TRUE(EndsSoon(again));
  // It reads only now: what the kernels held, and not the rest.
  pollfd waiting = {deaf.get(), POLLRDHUP, 0};
  EXPECT_EQ(::poll(&waiting, 1, 10000), 1);
  EXPECT_LT(ReadAll(deaf.get()).size(), size_t{32} << 20);
}

TEST_F(HttpLoadTest, UnreadAnswersDoNotPileUp) {
  options_.limits.answer_bytes = 40 << 20;
  Start();
  const std::string ask = "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const Fd first = ConnectTo(server_->port());
  ASSERT_TRUE(SendText(first, ask));
  char c;
  ASSERT_EQ(::recv(first.get(), &c, 1, MSG_PEEK), 1);
  const Fd second = ConnectTo(server_->port());
  ASSERT_TRUE(SendText(second, ask));
  pollfd waiting = {first.get(), POLLRDHUP, 0};
  EXPECT_EQ(::poll(&waiting, 1, 10000), 1);
  EXPECT_LT(ReadAll(first.get()).size(), size_t{32} << 20);
  EXPECT_THAT(ReadUntil(second, "\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

// Requests with bytes changed, cut and repeated, and plain noise.
TEST_F(HttpLoadTest, GarbageOfManyKindsHurtsNobody) {
  options_.limits.request = std::chrono::milliseconds(100);
  options_.limits.idle = std::chrono::milliseconds(100);
  Start();
  const std::string whole =
      "GET /metrics?a=b%20c&d HTTP/1.1\r\nHost: localhost\r\n"
      "Accept-Encoding: gzip;q=0.5, *\r\nRange: bytes=0-\r\n"
      "Authorization: Basic YTpi\r\nTransfer-Encoding: chunked\r\n"
      "Content-Length: 5\r\nConnection: keep-alive, close\r\n\r\n";
  std::mt19937 random(20);
  const auto pick = [&](size_t below) { return random() % below; };
  for (int round = 0; round < 400; ++round) {
    std::string bytes = whole.substr(0, 1 + pick(whole.size()));
    for (size_t change = pick(6); change > 0; --change) {
      const size_t at = pick(bytes.size());
      switch (pick(4)) {
        case 0:
          bytes[at] = static_cast<char>(pick(256));
          break;
        case 1:
          bytes.insert(at, bytes.substr(pick(bytes.size())));
          break;
        case 2:
          bytes.insert(at, 1 + pick(3000), static_cast<char>(pick(256)));
          break;
        default:
          bytes.erase(at, pick(20));
          if (bytes.empty()) bytes = "\r";
      }
    }
    const Fd fd = ConnectTo(server_->port());
    (void)!::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (pick(2) == 0) ::shutdown(fd.get(), SHUT_WR);
    if (pick(4) == 0) ReadAll(fd.get());
  }
  ExpectThatItAnswers();
}

}  // namespace
}  // namespace lockstep::http
