// Access to a daemon's HTTP pages and their TLS certificate: the file that
// Prometheus's own exporters take as --web.config.file.
//
//   tls_server_config:
//     cert_file: http.crt          # PEM; paths are relative to this file
//     key_file: http.key
//     client_ca_file: clients.crt  # optional
//     client_auth_type: RequireAndVerifyClientCert
//     min_version: TLS13           # TLS12 if absent
//   basic_auth_users:
//     prometheus: $2y$10$...       # bcrypt, as `htpasswd -nB` prints it
//
// The format is that of prometheus/exporter-toolkit, docs/web-configuration.md.
// Fields that are not listed here are rejected by name, never ignored.
#ifndef LOCKSTEP_COMMON_HTTP_WEB_CONFIG_H_
#define LOCKSTEP_COMMON_HTTP_WEB_CONFIG_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace lockstep::http {

// Go's tls.ClientAuthType, whose names the file uses.
enum class ClientAuth {
  kNone,
  kRequest,
  kRequireAny,
  kVerifyIfGiven,
  kRequireAndVerify,
};

// True if a client's certificate must be signed by a known CA.
inline bool Verifies(ClientAuth auth) {
  return auth == ClientAuth::kVerifyIfGiven ||
         auth == ClientAuth::kRequireAndVerify;
}

struct WebTls {
  std::string certificate;
  std::string key;
  std::string client_ca;
  ClientAuth client_auth = ClientAuth::kNone;
  bool only_tls13 = false;
};

struct WebConfig {
  // Absent for plain HTTP.
  std::optional<WebTls> tls = {};
  // bcrypt hashes by name. Empty if no password is required.
  std::map<std::string, std::string> users = {};
};

// Relative paths start from `directory`; `name` is for errors. InvalidArgument
// names file, line and field.
StatusOr<WebConfig> ParseWebConfig(const std::string& text,
                                   const std::string& directory,
                                   const std::string& name);

// An empty path gives the empty configuration: plain HTTP without credentials.
// Errors: as ParseWebConfig; NotFound if the file cannot be read.
StatusOr<WebConfig> LoadWebConfig(const std::string& path);

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_WEB_CONFIG_H_
