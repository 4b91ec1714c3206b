// Who is let in, by what the server is given and what a request shows; and the
// same over real sockets.
#include "common/http/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/file.h"
#include "common/http/http_test_util.h"
#include "common/http/metrics.h"
#include "common/http/server.h"

namespace lockstep::http {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr char kBearer[] = "Bearer 0123456789abcdefghij";
// prometheus:secret, by bcrypt with the least rounds.
constexpr char kBasic[] = "Basic cHJvbWV0aGV1czpzZWNyZXQ=";
constexpr char kHash[] =
    "$2b$04$elSPiqidy8eaVAF9WHl/SuuG31pDH3GUgs8fOYKLhLWfmNzoX/1AO";

class AccessTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-access-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    const std::string path = dir_ + "/token";
    ASSERT_TRUE(RealFileSystem()
                    ->WriteAtomic(path, "0123456789abcdefghij\n", 0640)
                    .ok());
    auto token = AccessToken::Open(path, &clock_);
    ASSERT_TRUE(token.ok()) << token.status();
    token_ = *std::move(token);
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }

  SystemClock clock_;
  std::string dir_;
  std::shared_ptr<AccessToken> token_;
};

TEST_F(AccessTest, EachConfiguredWayLetsInAndNoOther) {
  using Auth = ClientAuth;
  // Admitted, in turn: no proof, a certificate, the token, a password.
  const struct {
    bool token, users;
    Auth auth;
    bool nothing, certificate, bearer, basic;
    bool asks;
  } cases[] = {
      // As before the token.
      {false, false, Auth::kNone, true, true, true, true, false},
      {false, false, Auth::kVerifyIfGiven, true, true, true, true, false},
      {false, false, Auth::kRequireAndVerify, true, true, true, true, true},
      {false, true, Auth::kNone, false, false, false, true, true},
      {false, true, Auth::kVerifyIfGiven, false, false, false, true, true},
      {false, true, Auth::kRequireAndVerify, false, false, false, true, true},
      // With it.
      {true, false, Auth::kNone, false, false, true, false, true},
      {true, true, Auth::kNone, false, false, true, true, true},
      {true, false, Auth::kVerifyIfGiven, false, true, true, false, true},
      {true, true, Auth::kVerifyIfGiven, false, true, true, true, true},
      {true, false, Auth::kRequireAndVerify, false, true, true, false, true},
      // A site that asks for both goes on asking for both.
      {true, true, Auth::kRequireAndVerify, false, false, true, true, true},
      // Nobody has looked at these certificates.
      {true, false, Auth::kRequest, false, false, true, false, true},
      {true, false, Auth::kRequireAny, false, false, true, false, true},
  };
  for (const auto& c : cases) {
    WebConfig web;
    web.tls = WebTls();
    web.tls->client_auth = c.auth;
    if (c.users) web.users = {{"prometheus", kHash}};
    Access access(web, c.token ? token_ : nullptr);
    const auto admits = [&](const char* authorization, bool certified) {
      HttpHead head;
      head.authorization = authorization;
      head.certified = certified;
      return access.Admits(head);
    };
    const std::string which =
        fmt::format("{} {} {}", c.token, c.users, static_cast<int>(c.auth));
    EXPECT_EQ(access.asks(), c.asks) << which;
    EXPECT_EQ(admits("", false), c.nothing) << which;
    EXPECT_EQ(admits("", true), c.certificate) << which;
    EXPECT_EQ(admits(kBearer, false), c.bearer) << which;
    EXPECT_EQ(admits(kBasic, false), c.basic) << which;
    EXPECT_EQ(admits("Bearer wrong", false), c.nothing) << which;
  }
}

TEST_F(AccessTest, HealthIsForEverybodyAndNothingElse) {
  HttpServerOptions options;
  options.address = "127.0.0.1:0";
  options.token = token_;
  auto server = HttpServer::Create(options);
  ASSERT_TRUE(server.ok()) << server.status();
  AddStandardPages({.program = "x", .collectables = {}, .ready = nullptr},
                   server->get());
  (*server)->HandlePrefix("/jobs/", [](const HttpRequest&) {
    return HttpResponse{.body = "a job"};
  });
  ASSERT_TRUE((*server)->Start().ok());
  const int port = (*server)->port();
  for (const char* path : {"/-/healthy", "/-/ready"}) {
    EXPECT_THAT(Ask(port, "GET", path), StartsWith("HTTP/1.1 200 ")) << path;
  }
  const std::string header = fmt::format("Authorization: {}\r\n", kBearer);
  int refused = 0;
  for (const char* path :
       {"/metrics", "/version", "/jobs/a", "/nowhere", "/-/ready/", "%2",
        "/-/ready?", "/-/%72eady/../../metrics"}) {
    const bool ready = std::string(path) == "/-/ready?";
    const std::string answer = Ask(port, "GET", path);
    EXPECT_THAT(answer, StartsWith(ready ? "HTTP/1.1 200 " : "HTTP/1.1 401 "))
        << path;
    if (!ready) {
      ++refused;
      EXPECT_THAT(answer, HasSubstr("WWW-Authenticate: Basic realm=\"lockstep\""
                                    ", Bearer realm=\"lockstep\""));
    }
  }
  EXPECT_THAT(Ask(port, "GET", "/metrics", "Authorization: Bearer no\r\n"),
              StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(Ask(port, "GET", "/jobs/a", header), HasSubstr("a job"));
  EXPECT_THAT(Ask(port, "GET", "/metrics", header),
              HasSubstr(fmt::format("lockstep_http_requests_refused_total {}\n",
                                    refused + 1)));
}

}  // namespace
}  // namespace lockstep::http
