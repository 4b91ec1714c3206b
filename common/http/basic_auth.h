// HTTP basic authentication (RFC 7617) against bcrypt hashes.
#ifndef LOCKSTEP_COMMON_HTTP_BASIC_AUTH_H_
#define LOCKSTEP_COMMON_HTTP_BASIC_AUTH_H_

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace lockstep::http {

// Thread-safe. bcrypt takes tens of milliseconds by design, so accepted
// passwords are cached as digests.
class BasicAuth {
 public:
  // bcrypt hashes by user.
  explicit BasicAuth(std::map<std::string, std::string> users);

  // True if a password is required.
  bool enabled() const { return !users_.empty(); }
  // `header` is the value of "Authorization", empty if absent. An unknown user
  // takes as long as a wrong password.
  bool Admits(std::string_view header) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::map<std::string, std::string> users_;
  Mutex mu_;
  std::set<std::string> known_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_BASIC_AUTH_H_
