// The word that a client of an HTTP port shows: one line of a file that the
// daemon and its readers share, such as Prometheus (credentials_file).
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

namespace lockstep {

// Thread-safe.
class AccessToken {
 public:
  // Reads `path`; makes it first where it is missing: 32 random bytes as
  // base64url, mode 0640. Several may do so at once: one of them makes it.
  // `clock` must outlive it. Errors: InvalidArgument it is not one line of 16
  // to 512 visible ASCII characters, or every user of this machine may read
  // it; FailedPrecondition it can be neither read nor made.
  static StatusOr<std::unique_ptr<AccessToken>> Open(std::string path,
                                                     const Clock* clock);

  // Whether `header`, the value of "Authorization", has it: as "Bearer TOKEN",
  // or as the password of the user "token" (Basic), which is what a browser
  // can send. A file that has changed counts within a second; while it cannot
  // be used, the last one that could.
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
  // Of the file that was looked at last (its number, and when anything about it
  // changed), and when that was.
  std::tuple<ino_t, time_t, long> version_ ABSL_GUARDED_BY(mu_);
  MonoTime looked_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_HTTP_ACCESS_TOKEN_H_
