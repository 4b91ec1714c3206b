// The steps of stopping a local cluster that are not about its daemons.
#ifndef LOCKSTEP_CLIENT_LOCAL_SHUTDOWN_H_
#define LOCKSTEP_CLIENT_LOCAL_SHUTDOWN_H_

#include "client/lib/client.h"
#include "client/local/layout.h"
#include "client/local/records.h"
#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep {

// Cancels all jobs and waits at most `patience` until they have ended. Returns
// how many it cancelled.
StatusOr<int> CancelAllJobs(ClientOptions options, Duration patience);

// Removes what the cluster made in its directory, and the directory if it is
// empty then.
Status RemoveClusterFiles(const LocalLayout& layout,
                          const ClusterRecord& record);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_LOCAL_SHUTDOWN_H_
