// The coordinator's own metrics, read when they are scraped:
// docs/metrics-coordinator.md lists them.
#ifndef LOCKSTEP_SERVER_SERVICE_METRICS_H_
#define LOCKSTEP_SERVER_SERVICE_METRICS_H_

#include <prometheus/collectable.h>

#include <vector>

#include "server/coordinator/coordinator.h"
#include "server/core/bill.h"
#include "server/service/metric_ledger.h"

namespace lockstep {

// Upper bounds of the number of series, so that a site can reckon: histogram
// buckets count.
inline constexpr size_t kSeriesAtRest = 500;
inline constexpr size_t kSeriesPerNode = 12;
inline constexpr size_t kSeriesPerPool = 20;
inline constexpr size_t kSeriesPerLiveJob = 45;
// One for each node that a job runs or ran on.
inline constexpr size_t kSeriesPerNodeOfJob = 1;

// Thread-safe: Collect runs on the HTTP server's threads.
class CoordinatorMetrics final : public prometheus::Collectable {
 public:
  // Both outlive it; `ledger` observes `coordinator`.
  CoordinatorMetrics(Coordinator* coordinator, MetricLedger* ledger,
                     Prices prices)
      : coordinator_(coordinator),
        ledger_(ledger),
        prices_(std::move(prices)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  Coordinator* const coordinator_;
  MetricLedger* const ledger_;
  const Prices prices_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_METRICS_H_
