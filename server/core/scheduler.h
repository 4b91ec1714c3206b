// Places queued jobs: all of a gang at once, or nothing. Pure.
//
// The order is by priority, then by age. A smaller job may pass one that does
// not fit, until that one has waited for `ageing_limit`. Then no job passes it,
// unless the nodes that it needs are not READY.
// A gang that is placed again keeps its places, if it still fits and the place
// did not end it. Otherwise tasks go to few hosts: the largest task first, each
// on the first host with room. Tasks with GPUs prefer hosts with the most free
// GPUs, the others those with the fewest; then CPUs decide, then the node name.
// A role in a container needs a host with a container engine. A job that names
// a pool uses only that pool's nodes, and while it waits it does not block jobs
// that cannot go there.
// No gang uses two nodes that are apart, or a node that cools down (strikes.h).
// A job that fits except for these rules waits as CANNOT_FORM.
// A job whose ranks were killed twice on one node avoids it if it can.
// A job that may run with fewer tasks (rescale.h) is placed with as many as fit
// if there is no room for all.
// The same input, in any order, gives the same placement.
#ifndef LOCKSTEP_SERVER_CORE_SCHEDULER_H_
#define LOCKSTEP_SERVER_CORE_SCHEDULER_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "common/base/status.h"
#include "server/core/job.h"
#include "server/core/placement.h"

namespace lockstep::server {

// Orders by descending priority, then by age, then by name.
inline auto QueueOrder(int32_t priority, WallTime create_time,
                       std::string_view job) {
  return std::tuple(-int64_t{priority}, create_time, job);
}

// A job's key in the queue, which Schedule processes in this order.
struct QueuePlace {
  int32_t priority = 0;
  WallTime create_time{};
  JobName job;

  bool operator<(const QueuePlace& other) const {
    return QueueOrder(priority, create_time, job) <
           QueueOrder(other.priority, other.create_time, other.job);
  }
};
QueuePlace PlaceInQueue(const Job& job);

struct QueuedJob {
  const Job* job = nullptr;
  // How long it has been in QUEUED or PLACING.
  Duration waited{};
  // Its backoff is not over yet.
  bool backing_off = false;
};

struct ScheduleResult {
  struct Placed {
    JobName job;
    std::vector<TaskPlacement> placement;
  };
  std::vector<Placed> placed;
  // Why each of the others waits.
  std::map<JobName, Cause> waiting;
};

struct SchedulerOptions {
  Duration ageing_limit = std::chrono::minutes(5);
  // Without, a cause of `waiting` for lack of room has no text: to say what is
  // missing takes far longer than to find places.
  bool texts = true;
};

ScheduleResult Schedule(std::vector<QueuedJob> queue,
                        std::vector<HostCapacity> hosts,
                        const SchedulerOptions& options);

// Places one gang on the hosts as they are; nullopt if it does not fit now.
std::optional<std::vector<TaskPlacement>> PlaceGang(
    const JobSpec& spec, std::vector<HostCapacity> hosts);

// Returns why `spec` would not fit even if every host were empty and READY: one
// sentence for each shortage, with the nearest request that fits. Empty if it
// would fit, or if no host is known yet.
std::vector<std::string> WhyNeverFits(const JobSpec& spec,
                                      std::vector<HostCapacity> hosts);

// Returns FailedPrecondition (reason NEVER_FITS) with all sentences of
// WhyNeverFits; OK if there are none.
Status CheckCanEverFit(const JobSpec& spec, std::vector<HostCapacity> hosts);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_SCHEDULER_H_
