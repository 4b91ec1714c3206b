// Gauges and stored counters of one job: docs/metrics-coordinator.md.
#ifndef LOCKSTEP_SERVER_METRICS_JOB_METRICS_H_
#define LOCKSTEP_SERVER_METRICS_JOB_METRICS_H_

#include <optional>

#include "common/training/machines.h"
#include "server/coordinator/snapshot.h"
#include "server/metrics/job_account.h"
#include "server/metrics/metric_families.h"

namespace lockstep::server {

// The maximum number of user metric names per job; the first ones are kept.
inline constexpr size_t kMaxUserMetrics = 32;

// Chief and worker ranks: requested, and currently running.
int32_t TargetWorldSize(const Job& job);
int32_t ActualWorldSize(const JobSnapshot& snapshot);

// Returns the peak FLOP per second of all GPUs of the job's current tasks.
// Nullopt without GPUs or if `machines` lacks one of them.
std::optional<double> PeakFlopsOf(const Job& job, const CoordinatorView& view,
                                  const MachineTable& machines);

// Adds the job's metrics that need only `view`.
void AddJobMetrics(const JobSnapshot& snapshot, const CoordinatorView& view,
                   const MachineTable& machines, MetricFamilies* out);

// Adds the job's accumulated metrics.
void AddAccountMetrics(const Job& job, const JobAccount& account,
                       MetricFamilies* out);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_JOB_METRICS_H_
