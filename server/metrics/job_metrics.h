// The gauges and stored counters of one job: docs/metrics-coordinator.md.
#ifndef LOCKSTEP_SERVER_METRICS_JOB_METRICS_H_
#define LOCKSTEP_SERVER_METRICS_JOB_METRICS_H_

#include <optional>

#include "common/training/machines.h"
#include "server/coordinator/snapshot.h"
#include "server/metrics/job_account.h"
#include "server/metrics/metric_families.h"

namespace lockstep {

// Names of values that are shown of a job: the first of more.
inline constexpr size_t kMaxUserMetrics = 32;

// Chief and workers: asked for, and at work now.
int32_t TargetWorldSize(const Job& job);
int32_t ActualWorldSize(const JobSnapshot& snapshot);

// What the GPUs of the job's current tasks can do at most together, FLOP per
// second. Nothing where it has none, or `machines` does not know one of them.
std::optional<double> PeakFlopsOf(const Job& job, const CoordinatorView& view,
                                  const MachineTable& machines);

// What is known of the job in `view` without counting along.
void AddJobMetrics(const JobSnapshot& snapshot, const CoordinatorView& view,
                   const MachineTable& machines, MetricFamilies* out);

// What was counted of it.
void AddAccountMetrics(const Job& job, const JobAccount& account,
                       MetricFamilies* out);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_METRICS_JOB_METRICS_H_
