#include "common/http/web_config.h"

#include <crypt.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/http/basic_auth.h"
#include "common/http/http_test_util.h"

namespace lockstep::http {
namespace {

using testing::HasSubstr;

// Of the password "secret", at bcrypt's least cost.
std::string HashOfSecret() {
  crypt_data data = {};
  return crypt_r("secret", "$2b$04$abcdefghijklmnopqrstuu", &data);
}

TEST(WebConfigTest, ReadsTheExportersShape) {
  const auto config = ParseWebConfig(
      "tls_server_config:\n"
      "  cert_file: http.crt\n"
      "  key_file: /keys/http.key\n"
      "  client_ca_file: ca.crt\n"
      "  client_auth_type: RequireAndVerifyClientCert\n"
      "  min_version: TLS13\n"
      "basic_auth_users:\n"
      "  ann: " +
          HashOfSecret() + "\n",
      "/etc/lockstep", "web.yml");
  ASSERT_TRUE(config.ok()) << Message(config.status());
  ASSERT_TRUE(config->tls);
  EXPECT_EQ(config->tls->certificate, "/etc/lockstep/http.crt");
  EXPECT_EQ(config->tls->key, "/keys/http.key");
  EXPECT_EQ(config->tls->client_ca, "/etc/lockstep/ca.crt");
  EXPECT_EQ(config->tls->client_auth, ClientAuth::kRequireAndVerify);
  EXPECT_TRUE(config->tls->only_tls13);
  EXPECT_EQ(config->users.size(), 1u);
}

TEST(WebConfigTest, NothingIsPlainAndOpen) {
  for (const char* text : {"", "# nothing\n"}) {
    const auto config = ParseWebConfig(text, ".", "web.yml");
    ASSERT_TRUE(config.ok()) << Message(config.status());
    EXPECT_FALSE(config->tls);
    EXPECT_TRUE(config->users.empty());
  }
  EXPECT_TRUE(LoadWebConfig("").ok());
}

TEST(WebConfigTest, AFileThatIsNotThereIsNamed) {
  const auto config = LoadWebConfig("/nowhere/web.yml");
  EXPECT_EQ(config.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(config.status()), HasSubstr("/nowhere/web.yml"));
}

TEST(WebConfigTest, ErrorsSayWhere) {
  const std::string pair = "  cert_file: a\n  key_file: b\n";
  const struct {
    std::string text;
    const char* error;
  } cases[] = {
      {"- 1\n", "web.yml: it is not a map"},
      {"tls: {}\n", "web.yml:1: there is no field tls"},
      {"http_server_config: {http2: true}\n", "no field http_server_config"},
      {"tls_server_config: 3\n", "must be a map"},
      {"tls_server_config:\n  cert_file: a\n", "both cert_file and key_file"},
      {"tls_server_config:\n  cert_file: []\n", "web.yml:2: cert_file"},
      {"tls_server_config:\n" + pair + "  cipher_suites: [x]\n",
       "web.yml:4: tls_server_config has no field cipher_suites"},
      {"tls_server_config:\n" + pair + "  client_auth_type: Some\n",
       "web.yml:4: there is no client_auth_type Some"},
      {"tls_server_config:\n" + pair +
           "  client_auth_type: RequireAndVerifyClientCert\n",
       "needs a client_ca_file"},
      {"tls_server_config:\n" + pair + "  client_ca_file: c\n", "no effect"},
      {"tls_server_config:\n" + pair + "  min_version: TLS10\n",
       "TLS12 or TLS13"},
      {"basic_auth_users: [ann]\n", "must be a map"},
      {"basic_auth_users:\n  ann: secret\n", "web.yml:2: basic_auth_users"},
      {"basic_auth_users:\n  'a:b': x\n", "or have a colon"},
      {"{", "web.yml: "},
  };
  for (const auto& c : cases) {
    const auto config = ParseWebConfig(c.text, ".", "web.yml");
    EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(Message(config.status()), HasSubstr(c.error)) << c.text;
  }
  // A password in the hash's place is not told to everybody.
  EXPECT_THAT(
      Message(ParseWebConfig("basic_auth_users:\n  ann: hunter2\n", ".", "w")
                  .status()),
      testing::Not(HasSubstr("hunter2")));
}

TEST(BasicAuthTest, WhoKnowsThePasswordIsAdmitted) {
  BasicAuth auth({{"ann", HashOfSecret()}});
  const struct {
    std::string header;
    bool admitted;
  } cases[] = {
      {Basic("ann:secret"), true},
      {"basic " + absl::Base64Escape("ann:secret"), true},
      {Basic("ann:secret"), true},
      {Basic("ann:Secret"), false},
      {Basic("ann:"), false},
      {Basic("ann"), false},
      {Basic("bob:secret"), false},
      {Basic(std::string("ann:secret\0x", 12)), false},
      {"", false},
      {"Basic", false},
      {"Basic !!!", false},
      {"Bearer secret", false},
      {Basic("ann:" + std::string(100000, 'x')), false},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(auth.Admits(c.header), c.admitted) << c.header.substr(0, 80);
  }
}

TEST(BasicAuthTest, WithoutUsersNobodyIsAsked) {
  BasicAuth auth({});
  EXPECT_TRUE(auth.Admits(""));
}

}  // namespace
}  // namespace lockstep::http
