// Browsers: a link of who has the token (login_link.h) becomes a session, which
// is a cookie.
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

namespace lockstep {

// Thread-safe. A session is signed with the token and not kept here: it lasts
// 12 hours, over restarts, and ends when the token changes. What is kept is
// which links of the last minute were used; a link from before this daemon's
// start is refused, as that is not known of it.
class Login {
 public:
  // `secure`: cookies for TLS alone.
  Login(std::shared_ptr<AccessToken> token, bool secure);

  // 303 to "/" with the cookie, or 403.
  HttpResponse Answer(const HttpTarget& target);

  // Whether `cookie`, the header, has a session of ours that lasts.
  bool Admits(std::string_view cookie);

 private:
  // The first use of a good link.
  bool Uses(const HttpTarget& target) ABSL_LOCKS_EXCLUDED(mu_);
  // Of the token: daemons with other ones on this host have other names.
  std::string CookieName() const;

  const std::shared_ptr<AccessToken> token_;
  const bool secure_;
  const int64_t started_;
  Mutex mu_;
  // Nonces of links, and when these end (Unix seconds).
  std::map<std::string, int64_t> used_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_HTTP_LOGIN_H_
