// Browser logins: a link made with the token (login_link.h) starts a session,
// which is a cookie.
#ifndef LOCKSTEP_COMMON_HTTP_LOGIN_H_
#define LOCKSTEP_COMMON_HTTP_LOGIN_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/http/access_token.h"
#include "common/http/message.h"
#include "common/http/target.h"

namespace lockstep::http {

// Thread-safe. A session is signed with the token and not stored. It lasts 12
// hours, survives restarts, and ends when the token changes. Only the links
// used in the last minute are stored, so a link older than this daemon's start
// is rejected: it may have been used.
class Login {
 public:
  // `secure`: the cookie is for TLS only.
  Login(std::shared_ptr<AccessToken> token, bool secure);

  // Answers 303 to "/" with the cookie, or 403.
  HttpResponse Answer(const HttpTarget& target);

  // True if `cookie`, the header, holds a valid session.
  bool Admits(std::string_view cookie);

 private:
  // True for the first use of a valid link.
  bool Uses(const HttpTarget& target) ABSL_LOCKS_EXCLUDED(mu_);
  // Depends on the token, because daemons on one host share cookies.
  std::string CookieName() const;

  const std::shared_ptr<AccessToken> token_;
  const bool secure_;
  const int64_t started_;
  Mutex mu_;
  // Nonces of used links and their expiry (Unix seconds).
  std::map<std::string, int64_t> used_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_LOGIN_H_
