// Which job goes where: all of a gang at once or nothing. Pure.
//
// Order: priority, then age. A smaller job may pass one that does not fit,
// until that one has waited for `ageing_limit`; then nobody passes it, unless
// the nodes that it needs are not READY.
// A gang that is placed again goes where it was, if it still fits and the
// place was not what ended it. Else tasks go to few hosts: the largest first,
// each on the first host that has room; those that need GPUs look where most
// are free, the others where the fewest are; then by CPUs; ties by node name.
// A role in a container goes only where a container engine is, a job that names
// a pool only to that pool's nodes; who waits for one pool holds up nobody who
// cannot go there.
// No gang goes on two nodes that are apart, and none on one that cools down
// (strikes.h); who would fit but for that waits as CANNOT_FORM.
// A job whose ranks were killed twice on one node goes elsewhere if it can.
// The same input, in any order, gives the same placement.
#ifndef LOCKSTEP_SERVER_CORE_SCHEDULER_H_
#define LOCKSTEP_SERVER_CORE_SCHEDULER_H_

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/core/job.h"
#include "server/core/placement.h"

namespace lockstep {

// Where a job stands in the queue: the order in which Schedule looks at it.
struct QueuePlace {
  int32_t unimportance = 0;  // The larger, the later.
  WallTime create_time{};
  JobName job;

  auto operator<=>(const QueuePlace&) const = default;
};
QueuePlace PlaceInQueue(const Job& job);

struct QueuedJob {
  const Job* job = nullptr;
  // In QUEUED or PLACING.
  Duration waited{};
  // Not before its backoff is over.
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
};

ScheduleResult Schedule(std::vector<QueuedJob> queue,
                        std::vector<HostCapacity> hosts,
                        const SchedulerOptions& options);

// One gang on hosts as they are; nullopt: does not fit now.
std::optional<std::vector<TaskPlacement>> PlaceGang(
    const JobSpec& spec, std::vector<HostCapacity> hosts);

// Why `spec` would not fit even if every host were empty and READY: a sentence
// for each thing that is short, with the nearest that would fit. Empty: it
// would, or no host is known yet.
std::vector<std::string> WhyNeverFits(const JobSpec& spec,
                                      std::vector<HostCapacity> hosts);

// FailedPrecondition (reason NEVER_FITS) with all of WhyNeverFits; OK where
// that is empty.
Status CheckCanEverFit(const JobSpec& spec, std::vector<HostCapacity> hosts);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_SCHEDULER_H_
