#include "common/http/login.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/file.h"
#include "common/base/login_link.h"
#include "common/http/http_test_util.h"
#include "common/http/metrics.h"
#include "common/http/server.h"
#include "tests/support/fake_clock.h"

namespace lockstep::http {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kLoginToken[] = "0123456789abcdefghij";

class LoginTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-login-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    Write(kLoginToken);
    auto token = AccessToken::Open(dir_ + "/token", &clock_);
    ASSERT_TRUE(token.ok()) << token.status();
    token_ = *std::move(token);
    login_ = std::make_unique<Login>(token_, false);
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  void Write(const std::string& token) {
    ASSERT_TRUE(
        RealFileSystem()->WriteAtomic(dir_ + "/token", token, 0640).ok());
  }
  WallTime Now() const { return clock_.Now().wall; }
  HttpResponse Follow(const std::string& target) {
    return login_->Answer(ParseHttpTarget(target).value_or(HttpTarget()));
  }
  // The cookie as a browser sends it; empty: none was given.
  static std::string CookieOf(const HttpResponse& response) {
    const auto set = response.headers.find("Set-Cookie");
    if (set == response.headers.end()) return "";
    return set->second.substr(0, set->second.find(';'));
  }

  FakeClock clock_;
  std::string dir_;
  std::shared_ptr<AccessToken> token_;
  std::unique_ptr<Login> login_;
};

TEST_F(LoginTest, ALinkIsASessionOnce) {
  const std::string link = LoginTarget(kLoginToken, Now());
  EXPECT_THAT(link, Not(HasSubstr(kLoginToken)));
  const HttpResponse response = Follow(link);
  EXPECT_EQ(response.status, 303);
  EXPECT_EQ(response.headers.at("Location"), "/");
  EXPECT_THAT(response.headers.at("Set-Cookie"),
              EndsWith("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"));
  const std::string cookie = CookieOf(response);
  EXPECT_TRUE(login_->Admits(cookie));
  EXPECT_TRUE(login_->Admits("a=b; " + cookie + "; c=d"));
  EXPECT_EQ(Follow(link).status, 403);
  EXPECT_EQ(CookieOf(Follow(link)), "");
  // Another one is.
  EXPECT_EQ(Follow(LoginTarget(kLoginToken, Now())).status, 303);
}

TEST_F(LoginTest, OnlyWhatTheTokenHasSignedAndOfNow) {
  const std::string link = LoginTarget(kLoginToken, Now());
  std::string later = link;
  later.replace(later.find("expires=") + 17, 1, "9");
  std::string other_nonce = link;
  other_nonce.replace(other_nonce.find("nonce=") + 6, 2, "zz");
  for (const std::string& bad :
       {std::string(kLoginPath), later, other_nonce,
        link.substr(0, link.size() - 1), link + "0",
        LoginTarget("another-token-altogether", Now()),
        // Of a clock that is ahead, and too old.
        LoginTarget(kLoginToken, Now() + seconds(10)),
        LoginTarget(kLoginToken, Now() - seconds(60)),
        fmt::format("{}?expires=x&nonce=y&mac={}", kLoginPath,
                    TokenMac(kLoginToken, LoginText("x", "y")))}) {
    EXPECT_EQ(Follow(bad).status, 403) << bad;
  }
  EXPECT_EQ(Follow(link).status, 303);
}

TEST_F(LoginTest, ALinkEndsAfterAMinute) {
  const std::string used = LoginTarget(kLoginToken, Now());
  const std::string unused = LoginTarget(kLoginToken, Now());
  EXPECT_EQ(Follow(used).status, 303);
  clock_.Advance(seconds(59));
  EXPECT_EQ(Follow(used).status, 403);
  clock_.Advance(seconds(1));
  EXPECT_EQ(Follow(unused).status, 403);
}

TEST_F(LoginTest, ARestartForgetsNoUseOfALink) {
  const std::string link = LoginTarget(kLoginToken, Now());
  const HttpResponse response = Follow(link);
  EXPECT_EQ(response.status, 303);
  clock_.Advance(seconds(2));
  login_ = std::make_unique<Login>(token_, true);
  EXPECT_EQ(Follow(link).status, 403);
  // Sessions last. With TLS they are not sent without.
  EXPECT_TRUE(login_->Admits(CookieOf(response)));
  EXPECT_THAT(Follow(LoginTarget(kLoginToken, Now())).headers.at("Set-Cookie"),
              EndsWith("; SameSite=Strict; Secure"));
}

TEST_F(LoginTest, ASessionEndsWithItsTimeOrItsToken) {
  const std::string cookie = CookieOf(Follow(LoginTarget(kLoginToken, Now())));
  ASSERT_NE(cookie, "");
  std::string longer = cookie;
  longer.replace(longer.find('=') + 1, 1, "9");
  for (const std::string& bad :
       {std::string(), longer, cookie + "0", cookie.substr(1), "x" + cookie,
        cookie.substr(0, cookie.find('.')),
        // A link's mac is no session's.
        cookie.substr(0, cookie.find('.') + 1) +
            LoginTarget(kLoginToken, Now()).substr(110)}) {
    EXPECT_FALSE(login_->Admits(bad)) << bad;
  }
  clock_.Advance(hours(12) - seconds(1));
  EXPECT_TRUE(login_->Admits(cookie));
  clock_.Advance(seconds(1));
  EXPECT_FALSE(login_->Admits(cookie));
  const std::string another = CookieOf(Follow(LoginTarget(kLoginToken, Now())));
  EXPECT_TRUE(login_->Admits(another));
  Write("another-token-altogether");
  clock_.Advance(seconds(1));
  EXPECT_FALSE(login_->Admits(another));
}

TEST_F(LoginTest, ABrowserComesIn) {
  const SystemClock clock;
  HttpServerOptions options;
  options.address = "127.0.0.1:0";
  options.token = *AccessToken::Open(dir_ + "/token", &clock);
  auto server = HttpServer::Create(options);
  ASSERT_TRUE(server.ok()) << server.status();
  (*server)->Handle(
      "/", [](const HttpRequest&) { return HttpResponse{.body = "jobs"}; });
  ASSERT_TRUE((*server)->Start().ok());
  const int port = (*server)->port();
  const std::string link = LoginTarget(kLoginToken, clock.Now().wall);
  // Programs that look at links before people do use HEAD.
  EXPECT_THAT(Ask(port, "HEAD", link), StartsWith("HTTP/1.1 401 "));
  const std::string answer = Ask(port, "GET", link);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 303 "));
  const size_t at = answer.find("Set-Cookie: ");
  ASSERT_NE(at, std::string::npos) << answer;
  const std::string cookie =
      answer.substr(at + 12, answer.find(';', at) - at - 12);
  EXPECT_THAT(Ask(port, "GET", "/"), StartsWith("HTTP/1.1 401 "));
  EXPECT_EQ(Body(Ask(port, "GET", "/", "Cookie: " + cookie + "\r\n")), "jobs");
  EXPECT_THAT(Ask(port, "GET", link), StartsWith("HTTP/1.1 403 "));
  EXPECT_EQ((*server)->refused(), 3u);
}

}  // namespace
}  // namespace lockstep::http
