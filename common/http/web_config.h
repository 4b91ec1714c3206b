// Who may read a daemon's HTTP pages, and by which certificate it serves them:
// the file that Prometheus's own exporters take as --web.config.file.
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
// Source of the shape: prometheus/exporter-toolkit, docs/web-configuration.md.
// A field of it that is not here is refused by name, never ignored.
#ifndef LOCKSTEP_COMMON_HTTP_WEB_CONFIG_H_
#define LOCKSTEP_COMMON_HTTP_WEB_CONFIG_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace lockstep {

// Go's tls.ClientAuthType, whose names the file uses.
enum class ClientAuth {
  kNone,
  kRequest,
  kRequireAny,
  kVerifyIfGiven,
  kRequireAndVerify,
};

// Whether a client's certificate has to be of a known CA.
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
  // None: plain HTTP.
  std::optional<WebTls> tls = {};
  // bcrypt hashes by name; empty: no password is asked for.
  std::map<std::string, std::string> users = {};
};

// `directory` is what relative paths start from; `name` is for errors.
// InvalidArgument names file, line and field.
StatusOr<WebConfig> ParseWebConfig(const std::string& text,
                                   const std::string& directory,
                                   const std::string& name);

// An empty path gives the empty configuration: plain HTTP, everybody.
// Errors: as ParseWebConfig; NotFound: the file cannot be read.
StatusOr<WebConfig> LoadWebConfig(const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_HTTP_WEB_CONFIG_H_
