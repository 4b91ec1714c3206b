// The server over TLS: whom the handshake lets in, and what a certificate is
// worth afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include "common/base/file.h"
#include "common/http/http_test_util.h"
#include "common/http/metrics.h"
#include "common/http/server.h"
#include "common/pki/ca.h"

namespace lockstep::http {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class HttpsTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-http-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    const WallTime now = SystemClock().Now().wall;
    const auto ca = pki::CertificateAuthority::Create("prod", now);
    ASSERT_TRUE(ca.ok());
    const auto paths =
        pki::IssueInto(RealFileSystem(), dir_, *ca,
                       {.identity = pki::WorkerIdentity("prod", "a"),
                        .names = {},
                        .server = true},
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
  pki::CredentialPaths paths_;
};

// A TLS client; with our certificate or without.
class TlsClient {
 public:
  TlsClient(int port, const pki::CredentialPaths& paths, bool certificate)
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
        "GET " + path +
        " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
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

TEST_F(HttpsTest, AVerifiedCertificateIsAWayInBesideTheToken) {
  const SystemClock clock;
  const auto made = [&](ClientAuth auth) {
    HttpServerOptions options;
    options.address = "127.0.0.1:0";
    options.web.tls = Tls();
    options.web.tls->client_ca = paths_.ca;
    options.web.tls->client_auth = auth;
    auto token = AccessToken::Open(dir_ + "/token", &clock);
    EXPECT_TRUE(token.ok()) << token.status();
    options.token = *std::move(token);
    auto server = HttpServer::Create(options);
    EXPECT_TRUE(server.ok()) << Message(server.status());
    AddStandardPages({.program = "x", .collectables = {}, .ready = nullptr},
                     server->get());
    EXPECT_TRUE((*server)->Start().ok());
    return *std::move(server);
  };
  const struct {
    ClientAuth auth;
    bool certificate;
    const char* answer;
  } cases[] = {
      {ClientAuth::kVerifyIfGiven, true, "HTTP/1.1 200 "},
      {ClientAuth::kVerifyIfGiven, false, "HTTP/1.1 401 "},
      {ClientAuth::kRequireAndVerify, true, "HTTP/1.1 200 "},
      // The request shows it, but the server does not check it.
      {ClientAuth::kRequest, true, "HTTP/1.1 401 "},
      {ClientAuth::kRequireAny, true, "HTTP/1.1 401 "},
  };
  for (const auto& c : cases) {
    const auto server = made(c.auth);
    TlsClient client(server->port(), paths_, c.certificate);
    EXPECT_THAT(client.Get("/metrics"), StartsWith(c.answer))
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
}  // namespace lockstep::http
