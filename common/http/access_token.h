// The bearer token of an HTTP port: one line of a file that the daemon shares
// with its readers, such as Prometheus (credentials_file).
#ifndef LOCKSTEP_COMMON_HTTP_ACCESS_TOKEN_H_
#define LOCKSTEP_COMMON_HTTP_ACCESS_TOKEN_H_

#include <sys/types.h>

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace lockstep::http {

// Thread-safe.
class AccessToken {
 public:
  // Reads `path`. A missing file is created with 32 random bytes as base64url,
  // mode 0640; concurrent callers agree on one. `clock` must outlive the token.
  // Errors: InvalidArgument if the file is not one line of 16 to 512 visible
  // ASCII characters or is world-readable; FailedPrecondition if it cannot be
  // read or created.
  static StatusOr<std::unique_ptr<AccessToken>> Open(std::string path,
                                                     const Clock* clock);

  // True if `header`, the value of "Authorization", holds the token: as "Bearer
  // TOKEN", or as the password of the user "token" (Basic), which browsers can
  // send. A changed file counts within a second. While it is unusable, the last
  // valid token counts.
  bool Admits(std::string_view header) ABSL_LOCKS_EXCLUDED(mu_);

  // HMAC-SHA256 of `text` with the token as key, hexadecimal (login_link.h).
  std::string Mac(std::string_view text) ABSL_LOCKS_EXCLUDED(mu_);

  const Clock* clock() const { return clock_; }

 private:
  AccessToken(std::string path, const Clock* clock);

  Status Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReadIfChanged() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string path_;
  const Clock* const clock_;
  Mutex mu_;
  std::string token_ ABSL_GUARDED_BY(mu_);
  // Inode and change time of the file that was read last, and the time of that
  // check.
  std::tuple<ino_t, time_t, long> version_ ABSL_GUARDED_BY(mu_);
  MonoTime looked_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_ACCESS_TOKEN_H_
