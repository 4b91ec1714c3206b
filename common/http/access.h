// Decides which requests may read an HTTP server's pages.
#ifndef LOCKSTEP_COMMON_HTTP_ACCESS_H_
#define LOCKSTEP_COMMON_HTTP_ACCESS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "common/http/access_token.h"
#include "common/http/basic_auth.h"
#include "common/http/login.h"
#include "common/http/message.h"
#include "common/http/web_config.h"

namespace lockstep::http {

// Access is granted by the token, by a name and its password, and, if a token
// is configured, by a browser's session (login.h) or a verified client
// certificate. Without a token and names, every request that TLS accepts is
// granted.
//
// If the web configuration has names and requires certificates, a client needs
// both a name and a certificate. Thread-safe.
class Access {
 public:
  // `token` may be null.
  Access(const WebConfig& web, std::shared_ptr<AccessToken> token);

  // True if any check is configured, TLS client certificates included.
  bool asks() const { return by_head_ || by_tls_; }

  bool Admits(const HttpHead& head);
  // Returns the answer to a rejected request and counts it.
  HttpResponse Refuse();

  // True if a request for `path` must go to LogIn().
  bool IsLogin(const HttpHead& head, std::string_view path) const;
  // Counts rejected links. REQUIRES: IsLogin().
  HttpResponse LogIn(const HttpTarget& target);
  // Requests rejected since the start.
  uint64_t refused() const { return refused_; }

 private:
  const std::shared_ptr<AccessToken> token_;
  // Null without a token.
  const std::unique_ptr<Login> login_;
  BasicAuth basic_;
  // A request needs credentials in its head.
  const bool by_head_;
  // A connection needs a verified certificate.
  const bool by_tls_;
  const bool certificate_suffices_;
  std::atomic<uint64_t> refused_ = 0;
};

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_ACCESS_H_
