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

namespace lockstep {

// Each of these lets in, where it is configured: the token, a name with its
// password, and, beside a token, a browser's session (login.h) and a verified
// client certificate. Where neither
// token nor names are configured, everybody is let in whom TLS lets in: what a
// configuration of before asked for does not change.
//
// A certificate is asked for beside a name, and not in its place, where the
// web configuration has names and requires certificates. Thread-safe.
class Access {
 public:
  // `token` may be null: none.
  Access(const WebConfig& web, std::shared_ptr<AccessToken> token);

  // Whether anybody is kept out, be it by TLS.
  bool asks() const { return by_head_ || by_tls_; }

  bool Admits(const HttpHead& head);
  // What is answered to the others. Counts them.
  HttpResponse Refuse();

  // Whether a request for `path` is one for LogIn().
  bool IsLogin(const HttpHead& head, std::string_view path) const;
  // Counts who is refused. REQUIRES: IsLogin().
  HttpResponse LogIn(const HttpTarget& target);
  // Those that were refused since the start.
  uint64_t refused() const { return refused_; }

 private:
  const std::shared_ptr<AccessToken> token_;
  // Null: without token.
  const std::unique_ptr<Login> login_;
  BasicAuth basic_;
  // Whether a request has to show something.
  const bool by_head_;
  // Whether each connection has a verified certificate.
  const bool by_tls_;
  const bool certificate_suffices_;
  std::atomic<uint64_t> refused_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_HTTP_ACCESS_H_
