// The server over real sockets, by a client that sees every byte.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <prometheus/counter.h>
#include <prometheus/registry.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <future>
#include <stdexcept>
#include <vector>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/version.h"
#include "common/http/host_check.h"
#include "common/http/metrics.h"
#include "common/http/server.h"
#include "common/pki/ca.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Fd ConnectTo(int port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit = {10, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)),
            0);
  return fd;
}

std::string ReadAll(int fd) {
  std::string all;
  char buffer[4096];
  for (ssize_t n; (n = ::recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
    all.append(buffer, static_cast<size_t>(n));
  }
  return all;
}

// The whole answer to `request`, head and body.
std::string Exchange(int port, const std::string& request) {
  const Fd fd = ConnectTo(port);
  EXPECT_EQ(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  return ReadAll(fd.get());
}

std::string Ask(int port, const std::string& method, const std::string& target,
                const std::string& headers = "") {
  return Exchange(
      port, fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", method,
                        target, headers));
}

std::string Body(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

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
                    "GET /metrics HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  };
  for (const char* host : {"evil.example", "evil.example:9464"}) {
    const std::string answer = ask(host);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 421 ")) << host;
    EXPECT_THAT(Body(answer), HasSubstr("by no other name"));
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

class HttpsTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-http-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    const WallTime now = SystemClock().Now().wall;
    const auto ca = CertificateAuthority::Create("prod", now);
    ASSERT_TRUE(ca.ok());
    const auto paths = IssueInto(
        RealFileSystem(), dir_, *ca,
        {.identity = WorkerIdentity("prod", "a"), .names = {}, .server = true},
        now);
    ASSERT_TRUE(paths.ok()) << Message(paths.status());
    paths_ = *paths;
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }

  WebTls Tls() {
    WebTls tls;
    tls.certificate = paths_.certificate;
    tls.key = paths_.key;
    return tls;
  }

  std::string dir_;
  CredentialPaths paths_;
};

// A TLS client; with our certificate or without.
class TlsClient {
 public:
  TlsClient(int port, const CredentialPaths& paths, bool certificate)
      : fd_(ConnectTo(port)), context_(SSL_CTX_new(TLS_client_method())) {
    EXPECT_EQ(SSL_CTX_load_verify_file(context_, paths.ca.c_str()), 1);
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    if (certificate) {
      EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context_,
                                                   paths.certificate.c_str()),
                1);
      EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context_, paths.key.c_str(),
                                            SSL_FILETYPE_PEM),
                1);
    }
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, fd_.get());
  }
  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  // Empty: not let in.
  std::string Get(const std::string& path) {
    if (SSL_connect(ssl_) != 1) return "";
    const std::string request =
        "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    SSL_write(ssl_, request.data(), static_cast<int>(request.size()));
    std::string all;
    char buffer[4096];
    for (int n; (n = SSL_read(ssl_, buffer, sizeof(buffer))) > 0;) {
      all.append(buffer, static_cast<size_t>(n));
    }
    return all;
  }

 private:
  const Fd fd_;
  SSL_CTX* const context_;
  SSL* ssl_;
};

TEST_F(HttpsTest, AnyAddressWithACertificate) {
  auto server =
      HttpServer::Create({.address = "0.0.0.0:0", .web = {.tls = Tls()}});
  ASSERT_TRUE(server.ok()) << Message(server.status());
  AddStandardPages({.program = "x", .collectables = {}, .ready = nullptr},
                   server->get());
  ASSERT_TRUE((*server)->Start().ok());

  EXPECT_THAT(TlsClient((*server)->port(), paths_, false).Get("/-/healthy"),
              StartsWith("HTTP/1.1 200"));

  // Plain text on that port is no way in.
  EXPECT_THAT(Ask((*server)->port(), "GET", "/metrics"), Not(HasSubstr("200")));
}

TEST_F(HttpsTest, ClientsShowACertificateWhereTheyMust) {
  const struct {
    ClientAuth auth;
    bool certificate;
    bool admitted;
  } cases[] = {
      {ClientAuth::kNone, false, true},
      {ClientAuth::kRequest, false, true},
      {ClientAuth::kRequireAny, false, false},
      {ClientAuth::kRequireAny, true, true},
      {ClientAuth::kVerifyIfGiven, false, true},
      {ClientAuth::kRequireAndVerify, false, false},
      {ClientAuth::kRequireAndVerify, true, true},
  };
  for (const auto& c : cases) {
    WebTls tls = Tls();
    tls.client_auth = c.auth;
    tls.client_ca = paths_.ca;
    auto server =
        HttpServer::Create({.address = "127.0.0.1:0", .web = {.tls = tls}});
    ASSERT_TRUE(server.ok()) << Message(server.status());
    AddStandardPages({.program = "x", .collectables = {}, .ready = nullptr},
                     server->get());
    ASSERT_TRUE((*server)->Start().ok());
    TlsClient client((*server)->port(), paths_, c.certificate);
    EXPECT_EQ(client.Get("/-/healthy").starts_with("HTTP/1.1 200"), c.admitted)
        << static_cast<int>(c.auth) << c.certificate;
  }
}

TEST_F(HttpsTest, AHandshakeThatStopsHoldsNothingUp) {
  auto server =
      HttpServer::Create({.address = "127.0.0.1:0",
                          .web = {.tls = Tls()},
                          .limits = {.request = std::chrono::minutes(1)}});
  ASSERT_TRUE(server.ok());
  ASSERT_TRUE((*server)->Start().ok());
  const Fd silent = ConnectTo((*server)->port());
  const auto before = std::chrono::steady_clock::now();
  server->reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before,
            std::chrono::seconds(20));
}

TEST_F(HttpsTest, AnUnusablePairIsRefused) {
  const struct {
    std::string certificate, key, client_ca;
  } cases[] = {
      {paths_.certificate, "/nowhere", paths_.ca},
      {paths_.ca, paths_.key, paths_.ca},
      {paths_.certificate, paths_.key, "/nowhere"},
  };
  for (const auto& c : cases) {
    WebTls tls;
    tls.certificate = c.certificate;
    tls.key = c.key;
    tls.client_ca = c.client_ca;
    tls.client_auth = ClientAuth::kRequireAndVerify;
    const auto server =
        HttpServer::Create({.address = "127.0.0.1:0", .web = {.tls = tls}});
    EXPECT_EQ(server.status().code(), StatusCode::kFailedPrecondition)
        << c.certificate << c.key;
  }
}

}  // namespace
}  // namespace lockstep
