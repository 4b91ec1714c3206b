// The coordinator's own metrics, read when they are scraped.
#ifndef LOCKSTEP_SERVER_SERVICE_METRICS_H_
#define LOCKSTEP_SERVER_SERVICE_METRICS_H_

#include <prometheus/collectable.h>

#include <vector>

#include "server/coordinator/coordinator.h"

namespace lockstep {

// Thread-safe: Collect runs on the HTTP server's threads.
class CoordinatorMetrics final : public prometheus::Collectable {
 public:
  explicit CoordinatorMetrics(Coordinator* coordinator)
      : coordinator_(coordinator) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  Coordinator* const coordinator_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_METRICS_H_
