// Serialises starts and stops of a local cluster's daemons.
#ifndef LOCKSTEP_CLIENT_LOCAL_LOCK_H_
#define LOCKSTEP_CLIENT_LOCAL_LOCK_H_

#include <string>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/status.h"

namespace lockstep::cli {

// How long a command waits for another that starts or stops the cluster. A stop
// lasts as long as its jobs and daemons need.
inline constexpr Duration kLockTimeout = std::chrono::seconds(60);
// How long a killed daemon may take to disappear.
inline constexpr Duration kKillTimeout = std::chrono::seconds(5);

// Locks `path` by flock(2) and creates it if missing. Closing the Fd unlocks
// it. Unavailable if another process still holds it after `timeout`.
StatusOr<Fd> LockFile(const std::string& path, Duration timeout);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LOCAL_LOCK_H_
