// The configuration of a local cluster, from its options and its record.
#ifndef LOCKSTEP_CLIENT_LOCAL_SETTINGS_H_
#define LOCKSTEP_CLIENT_LOCAL_SETTINGS_H_

#include "client/local/layout.h"
#include "client/local/local_cluster.h"
#include "client/local/records.h"
#include "common/base/status.h"

namespace lockstep::cli {

// Returns `record`, which is empty for a new cluster, updated by `options`.
// Chooses missing ports and divides the machine. InvalidArgument for an invalid
// number of workers.
StatusOr<ClusterRecord> WantedCluster(ClusterRecord record,
                                      const LocalClusterOptions& options,
                                      const LocalLayout& layout);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LOCAL_SETTINGS_H_
