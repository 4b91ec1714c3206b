#include "server/metrics/notify_metrics.h"

#include "server/metrics/metric_families.h"

namespace lockstep::server {

std::vector<prometheus::MetricFamily> NotifyFamilies(
    const std::vector<ReceiverStats>& stats, WallTime now) {
  MetricFamilies out;
  for (const ReceiverStats& receiver : stats) {
    const auto count = [&](const char* result, uint64_t value) {
      out.Counter("lockstep_notifications_total",
                  "Notifications by receiver and result: sent; failed, a try "
                  "that is repeated; dropped, given up.",
                  static_cast<double>(value),
                  {{"receiver", receiver.name}, {"result", result}});
    };
    count("sent", receiver.sent);
    count("failed", receiver.failed);
    count("dropped", receiver.dropped);
    out.Gauge("lockstep_notifications_waiting",
              "Notifications that the receiver has not taken yet.",
              static_cast<double>(receiver.waiting),
              {{"receiver", receiver.name}});
    out.Gauge("lockstep_notifications_oldest_seconds",
              "Age of the oldest notification that the receiver has not taken; "
              "0: none waits.",
              receiver.oldest ? ToSeconds(now - *receiver.oldest) : 0,
              {{"receiver", receiver.name}});
  }
  return out.Take();
}

std::vector<prometheus::MetricFamily> NotifyMetrics::Collect() const {
  if (dispatcher_ == nullptr) return {};
  return NotifyFamilies(dispatcher_->Stats(), clock_->Now().wall);
}

}  // namespace lockstep::server
