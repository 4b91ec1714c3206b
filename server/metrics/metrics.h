// The coordinator's own metrics, read when they are scraped:
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

namespace lockstep {

// Upper bounds of the number of series, so that a site can reckon: histogram
// buckets count.
inline constexpr size_t kSeriesAtRest = 600;
inline constexpr size_t kSeriesPerNode = 13;
inline constexpr size_t kSeriesPerPool = 35;
inline constexpr size_t kSeriesPerLiveJob = 50;
// The most values that a job's ranks can report by name; one for each.
inline constexpr size_t kSeriesOfValues = 16;
// One for each node that a job runs or ran on.
inline constexpr size_t kSeriesPerNodeOfJob = 2;

// What is known of the daemon itself.
struct DaemonFacts {
  // Of its certificate; nullopt: it has none.
  std::optional<WallTime> certificate_end;
  // Where its state is; empty: the disk is not looked at.
  std::string dir;
  // Null: nothing is held there. Outlives who uses it.
  const Ballast* ballast = nullptr;
};

// Thread-safe: Collect runs on the HTTP server's threads.
class CoordinatorMetrics final : public prometheus::Collectable {
 public:
  // All outlive it; `ledger` observes the coordinator. `site` tells what GPUs
  // can do; null: it is not known.
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

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_METRICS_METRICS_H_
