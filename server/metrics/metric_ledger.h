// Accumulates the coordinator's metrics over time: an account for each job,
// idle resource time, histograms.
//
// Thread-safe. The coordinator reports events as they happen. Look() takes the
// rest, once per second and before each scrape.
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

namespace lockstep::server {

// How long the series of an ended job remain.
inline constexpr Duration kSeriesLinger = std::chrono::minutes(15);

// The outcome of a placement attempt.
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
  // Creates the series that exist from the start.
  MetricLedger();

  void OnJob(const Job* before, const Job& after, Time now) override;
  void OnCommit(Duration took, bool ok) override;
  void OnRoundTrip(const std::string& pool, Duration took) override;
  void OnSchedule(Duration took, const ScheduleResult& result) override;

  // Views must be passed in time order.
  void Look(const CoordinatorView& view) ABSL_LOCKS_EXCLUDED(mu_);

  // Adds all accumulated metrics, with the last view. Adds none before the
  // first Look().
  void Collect(const CoordinatorView& view, MetricFamilies* out) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the late rank of the job's last window, or nullopt.
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
  // Heartbeat round trips by pool.
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

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_METRIC_LEDGER_H_
