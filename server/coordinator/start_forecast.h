// When waiting jobs are expected to start (server/core/expected_start.h), from
// the coordinator's state. Thread-safe.
#ifndef LOCKSTEP_SERVER_COORDINATOR_START_FORECAST_H_
#define LOCKSTEP_SERVER_COORDINATOR_START_FORECAST_H_

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/options.h"
#include "server/coordinator/queue_scheduler.h"
#include "server/core/expected_start.h"

namespace lockstep::server {

class StartForecast {
 public:
  using Starts = std::map<JobName, WallTime>;

  struct Parts {
    const CoordinatorOptions* options;
    const ClusterState* state;
    const QueueScheduler* scheduler;
  };
  // `mu` guards what `parts` point to. All outlive this object.
  StartForecast(Mutex* mu, const Parts& parts) : mu_(*mu), parts_(parts) {}

  // Made anew at most every 10 s, outside of the coordinator's lock. Never
  // null.
  std::shared_ptr<const Starts> Get(Time now) const
      ABSL_LOCKS_EXCLUDED(mu_, made_mu_);

 private:
  struct Input {
    // Owns what `queue` points to.
    std::vector<std::shared_ptr<const Job>> jobs;
    std::vector<QueuedJob> queue;
    std::vector<HostCapacity> hosts;
    std::vector<ExpectedEnd> ends;
  };
  Input Gather(Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex& mu_;
  const Parts parts_ ABSL_GUARDED_BY(mu_);
  mutable Mutex made_mu_;
  mutable std::shared_ptr<const Starts> made_ ABSL_GUARDED_BY(made_mu_);
  mutable MonoTime made_at_ ABSL_GUARDED_BY(made_mu_){};
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_START_FORECAST_H_
