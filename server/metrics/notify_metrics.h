// Metrics of the receivers of notifications.
#ifndef LOCKSTEP_SERVER_METRICS_NOTIFY_METRICS_H_
#define LOCKSTEP_SERVER_METRICS_NOTIFY_METRICS_H_

#include <prometheus/collectable.h>

#include <vector>

#include "server/notify/dispatcher.h"

namespace lockstep::server {

std::vector<prometheus::MetricFamily> NotifyFamilies(
    const std::vector<ReceiverStats>& stats, WallTime now);

// Thread-safe.
class NotifyMetrics final : public prometheus::Collectable {
 public:
  // Both outlive this object. `dispatcher` is null if there are no receivers;
  // then there are no metrics.
  NotifyMetrics(const Dispatcher* dispatcher, const Clock* clock)
      : dispatcher_(dispatcher), clock_(clock) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Dispatcher* const dispatcher_;
  const Clock* const clock_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_NOTIFY_METRICS_H_
