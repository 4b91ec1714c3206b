// Steps of stopping a local cluster, except for its daemons.
#ifndef LOCKSTEP_CLIENT_LOCAL_SHUTDOWN_H_
#define LOCKSTEP_CLIENT_LOCAL_SHUTDOWN_H_

#include "client/lib/client.h"
#include "client/local/layout.h"
#include "client/local/records.h"
#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep::cli {

// Cancels all jobs and waits at most `patience` for their end. Returns the
// number of cancelled jobs.
StatusOr<int> CancelAllJobs(ClientOptions options, Duration patience);

// Removes the cluster's files in its directory, and the directory if it is
// empty then.
Status RemoveClusterFiles(const LocalLayout& layout,
                          const ClusterRecord& record);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LOCAL_SHUTDOWN_H_
