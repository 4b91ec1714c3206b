// One at a time starts and stops the daemons of a local cluster.
#ifndef LOCKSTEP_CLIENT_LOCAL_LOCK_H_
#define LOCKSTEP_CLIENT_LOCAL_LOCK_H_

#include <string>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/status.h"

namespace lockstep {

// flock(2) on `path`, which is made; given back when the Fd closes. Unavailable
// when another process still holds it after `timeout`.
StatusOr<Fd> LockFile(const std::string& path, Duration timeout);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_LOCAL_LOCK_H_
