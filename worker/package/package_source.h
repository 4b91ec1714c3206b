// The source of packages' bytes.
#ifndef LOCKSTEP_WORKER_PACKAGE_PACKAGE_SOURCE_H_
#define LOCKSTEP_WORKER_PACKAGE_PACKAGE_SOURCE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/package/cancellation.h"

namespace lockstep::worker::package {

// Safe from any thread.
class PackageSource {
 public:
  // An error ends the fetch, which returns it.
  using Take = std::function<Status(std::string_view bytes)>;

  virtual ~PackageSource() = default;

  // Passes the bytes of the package from `offset` on to `take`, in order, on
  // the caller's thread, and returns OK after the last. Errors:
  //   NotFound          the package does not exist
  //   OutOfRange        `offset` is behind its end
  //   Cancelled         by `cancel`
  //   DeadlineExceeded  no bytes arrived for `idle`
  //   Unavailable       the connection broke: resume from where it ended
  virtual Status Fetch(const std::string& digest, int64_t offset, Duration idle,
                       const Take& take, Cancellation* cancel) = 0;
};

}  // namespace lockstep::worker::package

#endif  // LOCKSTEP_WORKER_PACKAGE_PACKAGE_SOURCE_H_
