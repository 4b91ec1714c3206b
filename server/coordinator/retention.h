// Deletes expired data: ended jobs, answers, and data about removed nodes.
// Thread-compatible; guarded by the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_RETENTION_H_
#define LOCKSTEP_SERVER_COORDINATOR_RETENTION_H_

#include <vector>

#include "common/base/clock.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/committer.h"
#include "server/coordinator/options.h"
#include "server/coordinator/store_writer.h"

namespace lockstep::server {

class Retention {
 public:
  // All outlive this object.
  Retention(const RetentionOptions* options, const StoreWriter* writer,
            ClusterState* state, Committer* committer)
      : options_(*options),
        writer_(writer),
        state_(state),
        committer_(committer) {}

  // Deletes a few jobs per call, at most once per second.
  void Sweep(Time now);

 private:
  // Returns ended jobs that are too old or too many, oldest first.
  std::vector<JobName> Outdated(WallTime now) const;

  const RetentionOptions& options_;
  const StoreWriter* const writer_;
  ClusterState* const state_;
  Committer* const committer_;
  MonoTime last_sweep_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_RETENTION_H_
