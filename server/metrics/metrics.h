// The coordinator's metrics, computed at each scrape:
// docs/metrics-coordinator.md lists them.
#ifndef LOCKSTEP_SERVER_METRICS_METRICS_H_
#define LOCKSTEP_SERVER_METRICS_METRICS_H_

#include <prometheus/collectable.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/coordinator/cluster_queries.h"
#include "server/metrics/metric_ledger.h"
#include "server/site/site_tables.h"
#include "server/store/ballast.h"

namespace lockstep::server {

// Upper bounds of the number of series, histogram buckets included, for
// capacity planning.
inline constexpr size_t kSeriesAtRest = 720;
inline constexpr size_t kSeriesPerNode = 16;
inline constexpr size_t kSeriesPerPool = 35;
inline constexpr size_t kSeriesPerLiveJob = 52;
// The maximum number of values that a job's ranks can report by name; one
// series each.
inline constexpr size_t kSeriesOfValues = 16;
// One for each node of a job, present or past.
inline constexpr size_t kSeriesPerNodeOfJob = 2;

// Facts about the daemon itself.
struct DaemonFacts {
  // Expiry of its certificate. Nullopt without one.
  std::optional<WallTime> certificate_end;
  // Its state directory. Empty if the disk is not monitored.
  std::string dir;
  // Null if no ballast is held. Outlives this struct's users.
  const Ballast* ballast = nullptr;
};

// Thread-safe: Collect runs on the HTTP server's threads.
class CoordinatorMetrics final : public prometheus::Collectable {
 public:
  // All outlive this object; `ledger` observes the coordinator. `site` provides
  // peak GPU speeds; null if unknown.
  CoordinatorMetrics(const ClusterQueries* queries, MetricLedger* ledger,
                     DaemonFacts facts = {}, const SiteTables* site = nullptr)
      : queries_(queries),
        ledger_(ledger),
        facts_(std::move(facts)),
        site_(site) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const ClusterQueries* const queries_;
  MetricLedger* const ledger_;
  const DaemonFacts facts_;
  const SiteTables* const site_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_METRICS_H_
