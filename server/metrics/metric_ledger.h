// Keeps what the coordinator's metrics count from one moment to the next: an
// account for each job, the time of idle resources, histograms.
//
// Thread-safe. The coordinator tells it what happens while it happens; Look()
// takes in the rest, each second and before each scrape.
#ifndef LOCKSTEP_SERVER_METRICS_METRIC_LEDGER_H_
#define LOCKSTEP_SERVER_METRICS_METRIC_LEDGER_H_

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "server/coordinator/observer.h"
#include "server/coordinator/snapshot.h"
#include "server/metrics/job_account.h"
#include "server/metrics/metric_families.h"

namespace lockstep {

// How long the series of a job that has ended stay.
inline constexpr Duration kSeriesLinger = std::chrono::minutes(15);

// Why a job that was looked at was or was not placed.
enum class PlacementResult {
  kPlaced,
  kNoNodes,
  kNoCapacity,
  kBehindOthers,
  kBackoff,
  kOther,
};
inline constexpr size_t kPlacementResults = 6;
std::string_view Name(PlacementResult result);

class MetricLedger final : public CoordinatorObserver {
 public:
  // What is there from the start.
  MetricLedger();

  void OnJob(const Job* before, const Job& after, Time now) override;
  void OnCommit(Duration took, bool ok) override;
  void OnRoundTrip(const std::string& pool, Duration took) override;
  void OnSchedule(Duration took, const ScheduleResult& result) override;

  // `view` is no older than any view before.
  void Look(const CoordinatorView& view) ABSL_LOCKS_EXCLUDED(mu_);

  // Everything kept here, with the view that was looked at last. Nothing
  // before the first look.
  void Collect(const CoordinatorView& view, MetricFamilies* out) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // Who was late in the job's last window; nullopt: nobody.
  std::optional<int32_t> LateRank(const JobName& job) const
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Pool, resource, reason.
  using IdleKey = std::tuple<std::string, std::string, std::string>;

  void LookAtNodes(const CoordinatorView& view)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  // By name, with the uid.
  std::map<JobName, std::pair<std::string, JobAccount>> accounts_
      ABSL_GUARDED_BY(mu_);
  JobAccount::Pools pools_ ABSL_GUARDED_BY(mu_);
  JobTimings timings_ ABSL_GUARDED_BY(mu_);
  Histogram commits_ ABSL_GUARDED_BY(mu_);
  Histogram passes_ ABSL_GUARDED_BY(mu_);
  // Of heartbeats, by pool.
  std::map<std::string, Histogram> round_trips_ ABSL_GUARDED_BY(mu_);
  int64_t failed_commits_ ABSL_GUARDED_BY(mu_) = 0;
  std::array<int64_t, kPlacementResults> placements_ ABSL_GUARDED_BY(mu_){};
  std::map<Reason, int64_t> events_ ABSL_GUARDED_BY(mu_);
  std::map<NodeName, NodeState> node_states_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<std::string, NodeState>, int64_t> node_failures_
      ABSL_GUARDED_BY(mu_);
  std::map<IdleKey, double> idle_ ABSL_GUARDED_BY(mu_);
  std::optional<MonoTime> looked_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_METRICS_METRIC_LEDGER_H_
