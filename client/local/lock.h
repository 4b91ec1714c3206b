// One at a time starts and stops the daemons of a local cluster.
#ifndef LOCKSTEP_CLIENT_LOCAL_LOCK_H_
#define LOCKSTEP_CLIENT_LOCAL_LOCK_H_

#include <string>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/status.h"

namespace lockstep {

// How long a command waits for another that starts or stops the cluster. A
// stop may take as long as its jobs and daemons take.
inline constexpr Duration kLockTimeout = std::chrono::seconds(60);
// How long a killed daemon may take until it is gone.
inline constexpr Duration kKillTimeout = std::chrono::seconds(5);

// flock(2) on `path`, which is made; given back when the Fd closes. Unavailable
// when another process still holds it after `timeout`.
StatusOr<Fd> LockFile(const std::string& path, Duration timeout);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_LOCAL_LOCK_H_
