// Waits until the daemons of a local cluster serve.
#ifndef LOCKSTEP_CLIENT_LOCAL_READINESS_H_
#define LOCKSTEP_CLIENT_LOCAL_READINESS_H_

#include <functional>

#include "client/local/local_cluster.h"
#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep::cli {

// Waits until the coordinator serves and every worker is READY, and approves
// the workers' offers. `stopped` may be null. Errors:
//   Unavailable  a daemon has exited or is not ready after `timeout`; names it,
//                with the last line of its log
//   Cancelled    `stopped` returned true
Status WaitUntilReady(const LocalCluster& cluster, Duration timeout,
                      const std::function<bool()>& stopped);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LOCAL_READINESS_H_
