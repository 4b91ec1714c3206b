// What a local cluster is to be, from what is asked for and what is there.
#ifndef LOCKSTEP_CLIENT_LOCAL_SETTINGS_H_
#define LOCKSTEP_CLIENT_LOCAL_SETTINGS_H_

#include "client/local/layout.h"
#include "client/local/local_cluster.h"
#include "client/local/records.h"
#include "common/base/status.h"

namespace lockstep {

// Returns `record`, which is empty for a new cluster, with the wishes of
// `options`. Chooses ports for what has none, and divides the machine. Errors:
// InvalidArgument for a number of workers that cannot be.
StatusOr<ClusterRecord> WantedCluster(ClusterRecord record,
                                      const LocalClusterOptions& options,
                                      const LocalLayout& layout);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_LOCAL_SETTINGS_H_
