// The server over real sockets, by a client that sees every byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <future>
#include <stdexcept>
#include <vector>

#include "common/base/file.h"
#include "common/base/version.h"
#include "common/http/host_check.h"
#include "common/http/http_test_util.h"
#include "common/http/metrics.h"
#include "common/http/server.h"

namespace lockstep::http {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class HttpTest : public testing::Test {
 protected:
  void SetUp() override {
    auto server = HttpServer::Create({.address = "127.0.0.1:0", .threads = 2});
    ASSERT_TRUE(server.ok()) << Message(server.status());
    server_ = std::move(*server);
    auto registry = std::make_shared<prometheus::Registry>();
    prometheus::BuildCounter()
        .Name("things_total")
        .Help("Things.")
        .Register(*registry)
        .Add({{"kind", "a\"b"}})
        .Increment(3);
    AddStandardPages({.program = "lockstep-test",
                      .collectables = {registry},
                      .ready = [this]() -> Status {
                        if (ready_) return OkStatus();
                        return Unavailable("the store is being opened");
                      }},
                     server_.get());
    AddMetricsPage("/none", {}, server_.get(), "there is nothing");
    server_->Handle("/echo", [](const HttpRequest& request) {
      const auto name = request.query.find("name");
      return HttpResponse{.body = name == request.query.end() ? "none"
                                                              : name->second};
    });
    server_->Handle("/throws", [](const HttpRequest&) -> HttpResponse {
      throw std::runtime_error("secret");
    });
    const Status started = server_->Start();
    ASSERT_TRUE(started.ok()) << Message(started);
  }

  std::string Get(const std::string& target, const std::string& headers = "") {
    return Ask(server_->port(), "GET", target, headers);
  }

  std::atomic<bool> ready_ = true;
  std::unique_ptr<HttpServer> server_;
};

// As a page that has pointed its own name here makes a browser do.
TEST_F(HttpTest, AMetricsPageWithoutSeriesSaysWhy) {
  EXPECT_THAT(Get("/none"), HasSubstr("\r\n\r\n# there is nothing\n"));
}

TEST_F(HttpTest, ToAStrangersNameNobodyAnswers) {
  const auto ask = [&](const std::string& host) {
    return Exchange(server_->port(),
                    "GET /metrics HTTP/1.1\r\nConnection: close\r\nHost: " +
                        host + "\r\n\r\n");
  };
  for (const char* host : {"evil.example", "evil.example:9464"}) {
    const std::string answer = ask(host);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 421 ")) << host;
    EXPECT_THAT(Body(answer), HasSubstr("answers only to its address"));
    EXPECT_THAT(answer, Not(HasSubstr("things_total")));
  }
  for (const std::string& host : {server_->address(), MachineName()}) {
    EXPECT_THAT(ask(host), StartsWith("HTTP/1.1 200 ")) << host;
  }
}

TEST_F(HttpTest, EveryPageAnswers) {
  const struct {
    const char* method;
    const char* target;
    const char* status;
    const char* text;
  } cases[] = {
      {"GET", "/-/healthy", "200", "healthy"},
      {"GET", "/-/ready", "200", "ready"},
      {"GET", "/echo?name=a%20b&x=1", "200", "a b"},
      {"GET", "/echo", "200", "none"},
      {"GET", "/nothing", "404", "no such page"},
      {"GET", "/metrics/", "404", "no such page"},
      {"GET", "/../etc/passwd", "404", "no such page"},
      {"POST", "/metrics", "405", "Allow: GET, HEAD"},
      {"DELETE", "/-/healthy", "405", "Allow: GET, HEAD"},
      {"GET", "/throws", "500", "internal error"},
      {"BREW", "/", "400", ""},
  };
  for (const auto& c : cases) {
    const std::string answer = Ask(server_->port(), c.method, c.target);
    EXPECT_THAT(answer, StartsWith(std::string("HTTP/1.1 ") + c.status))
        << c.method << " " << c.target;
    EXPECT_THAT(answer, HasSubstr(c.text)) << c.method << " " << c.target;
    EXPECT_THAT(answer, HasSubstr("X-Content-Type-Options: nosniff"));
    EXPECT_THAT(answer, Not(HasSubstr("secret")));
  }
}

TEST_F(HttpTest, NotReadySaysWhy) {
  ready_ = false;
  const std::string answer = Get("/-/ready");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503"));
  EXPECT_EQ(Body(answer), "the store is being opened\n");
  EXPECT_THAT(Get("/-/healthy"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpTest, VersionIsJson) {
  const std::string answer = Get("/version");
  EXPECT_THAT(answer, HasSubstr("Content-Type: application/json"));
  EXPECT_EQ(
      Body(answer),
      fmt::format("{{\"program\":\"lockstep-test\",\"version\":\"{}\"}}\n",
                  kVersion));
}

TEST_F(HttpTest, MetricsAreOursAndTheProcess) {
  const std::string answer = Get("/metrics");
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  const std::string body = Body(answer);
  EXPECT_THAT(body, HasSubstr("things_total{kind=\"a\\\"b\"} 3"));
  EXPECT_THAT(body, HasSubstr("# TYPE process_cpu_seconds_total counter"));
  EXPECT_THAT(body, HasSubstr("lockstep_build_info{program=\"lockstep-test\""));
  for (const char* name :
       {"process_resident_memory_bytes", "process_virtual_memory_bytes",
        "process_open_fds", "process_max_fds", "process_start_time_seconds"}) {
    const size_t at = body.find(fmt::format("\n{} ", name));
    ASSERT_NE(at, std::string::npos) << name;
    EXPECT_GT(std::atof(body.c_str() + at + std::strlen(name) + 2), 0) << name;
  }
}

TEST_F(HttpTest, CompressesForThoseWhoAccept) {
  const std::string answer = Get("/metrics", "Accept-Encoding: gzip\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Encoding: gzip"));
  // Chunked or not, the stream begins with gzip's magic (RFC 1952).
  const std::string body = Body(answer);
  const size_t start = body.find("\x1f\x8b");
  ASSERT_NE(start, std::string::npos);
  EXPECT_LT(body.size(), Body(Get("/metrics")).size());
}

TEST_F(HttpTest, HeadHasNoBody) {
  const std::string answer = Ask(server_->port(), "HEAD", "/-/healthy");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 8"));
  EXPECT_EQ(Body(answer), "");
}

TEST_F(HttpTest, RangesDoNotMultiplyTheBody) {
  std::string ranges = "Range: bytes=0-";
  for (int i = 0; i < 500; ++i) ranges += ",0-";
  const std::string answer = Get("/metrics", ranges + "\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 416"));
  EXPECT_LT(answer.size(), 1000u);
}

TEST_F(HttpTest, GarbageHurtsNobody) {
  for (const std::string& bytes :
       {std::string("\x16\x03\x01\x02"), std::string(100000, 'x'),
        "GET /" + std::string(100000, 'a') + " HTTP/1.1\r\n\r\n",
        std::string("GET /\r\n\r\n"), std::string(1000, '\n')}) {
    const Fd fd = ConnectTo(server_->port());
    (void)!::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ::shutdown(fd.get(), SHUT_WR);
    ReadAll(fd.get());
    EXPECT_THAT(Get("/-/healthy"), StartsWith("HTTP/1.1 200"));
  }
}

TEST_F(HttpTest, ManyAtOnceAllGetTheirAnswer) {
  std::vector<std::future<std::string>> answers;
  for (int i = 0; i < 50; ++i) {
    answers.push_back(
        std::async(std::launch::async, [this] { return Get("/-/healthy"); }));
  }
  for (auto& answer : answers) {
    EXPECT_THAT(answer.get(), StartsWith("HTTP/1.1 200"));
  }
}

TEST_F(HttpTest, PrefixesGiveWayToPathsAndLongerPrefixes) {
  auto server = HttpServer::Create({.address = "127.0.0.1:0"});
  ASSERT_TRUE(server.ok());
  const auto say = [](const char* what) {
    return [what](const HttpRequest& request) {
      return HttpResponse{.body = what + request.path,
                          .headers = {{"X-Which", what}}};
    };
  };
  (*server)->HandlePrefix("/a/", say("short"));
  (*server)->HandlePrefix("/a/b/", say("long"));
  (*server)->Handle("/a/b/c", say("exact"));
  ASSERT_TRUE((*server)->Start().ok());
  const int port = (*server)->port();
  EXPECT_EQ(Body(Ask(port, "GET", "/a/x%20y")), "short/a/x y");
  EXPECT_EQ(Body(Ask(port, "GET", "/a/b/x")), "long/a/b/x");
  EXPECT_EQ(Body(Ask(port, "GET", "/a/b/c")), "exact/a/b/c");
  EXPECT_THAT(Ask(port, "GET", "/a/b/c"), HasSubstr("X-Which: exact"));
  EXPECT_THAT(Ask(port, "GET", "/a"), StartsWith("HTTP/1.1 404"));
}

// The thread that serves them is one that scrapes wait for.
TEST(HttpServerTest, ARequestHasOneDeadlineHoweverItTrickles) {
  HttpServerOptions options;
  options.address = "127.0.0.1:0";
  options.threads = 1;
  options.limits.request = std::chrono::seconds(2);
  auto server = HttpServer::Create(options);
  ASSERT_TRUE(server.ok());
  AddStandardPages({.program = "x", .collectables = {}, .ready = nullptr},
                   server->get());
  ASSERT_TRUE((*server)->Start().ok());
  const Fd slow = ConnectTo((*server)->port());
  std::atomic<bool> stop = false;
  auto trickle = std::async(std::launch::async, [&] {
    // Until the server has had enough.
    while (!stop && ::send(slow.get(), "G", 1, MSG_NOSIGNAL) == 1) {
      ::poll(nullptr, 0, 20);
    }
  });
  EXPECT_THAT(Ask((*server)->port(), "GET", "/-/healthy"),
              StartsWith("HTTP/1.1 200"));
  stop = true;
}

TEST(HttpServerTest, AHeadWithoutEndIsCutOff) {
  auto server =
      HttpServer::Create({.address = "127.0.0.1:0",
                          .limits = {.request = std::chrono::minutes(1)}});
  ASSERT_TRUE(server.ok());
  ASSERT_TRUE((*server)->Start().ok());
  std::string head = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 20000; ++i) head += "X-A: b\r\n";
  const auto before = std::chrono::steady_clock::now();
  Exchange((*server)->port(), head);
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(9));
}

TEST(HttpServerTest, SlowClientsDoNotDelayTheEnd) {
  HttpServerOptions options;
  options.address = "127.0.0.1:0";
  options.threads = 2;
  auto server = HttpServer::Create(options);
  ASSERT_TRUE(server.ok());
  (*server)->Handle("/large", [](const HttpRequest&) {
    return HttpResponse{.body = std::string(64 << 20, 'x')};
  });
  ASSERT_TRUE((*server)->Start().ok());
  std::vector<Fd> clients;
  // Ones that say nothing, half a request, and one that never reads; more of
  // them than there are threads and places in the queue.
  clients.push_back(ConnectTo((*server)->port()));
  const std::string ask = "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_EQ(::send(clients[0].get(), ask.data(), ask.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(ask.size()));
  for (int i = 0; i < 10; ++i) {
    clients.push_back(ConnectTo((*server)->port()));
    ASSERT_EQ(::send(clients.back().get(), "GET", i % 2 == 0 ? 3 : 1, 0),
              i % 2 == 0 ? 3 : 1);
  }
  char first;
  ASSERT_EQ(::recv(clients[0].get(), &first, 1, 0), 1);
  const auto before = std::chrono::steady_clock::now();
  server->reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before,
            std::chrono::seconds(20));
}

TEST_F(HttpTest, APortIsOneDaemons) {
  const auto second = HttpServer::Create({.address = server_->address()});
  ASSERT_TRUE(second.ok());
  const Status s = (*second)->Start();
  EXPECT_EQ(s.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(s), HasSubstr(server_->address()));
}

TEST(HttpServerTest, StopsAtOnceAfterStart) {
  for (int i = 0; i < 20; ++i) {
    auto server = HttpServer::Create({.address = "127.0.0.1:0"});
    ASSERT_TRUE(server.ok());
    EXPECT_TRUE((*server)->Start().ok());
  }
}

TEST(HttpServerTest, RefusesPlainTextWhereOthersCanReachIt) {
  const struct {
    const char* address;
    StatusCode code;
  } cases[] = {
      {"127.0.0.1:0", StatusCode::kOk},
      {"[::1]:0", StatusCode::kOk},
      {"0.0.0.0:0", StatusCode::kInvalidArgument},
      {"[::]:0", StatusCode::kInvalidArgument},
      {"10.1.2.3:80", StatusCode::kInvalidArgument},
      {"host:80", StatusCode::kInvalidArgument},
      {"nonsense", StatusCode::kInvalidArgument},
  };
  for (const auto& c : cases) {
    const auto server = HttpServer::Create({.address = c.address});
    EXPECT_EQ(server.status().code(), c.code) << c.address;
  }
}

}  // namespace
}  // namespace lockstep::http
