// Builds the result of a Collectable: one family per name, in the order of
// first appearance.
#ifndef LOCKSTEP_SERVER_METRICS_METRIC_FAMILIES_H_
#define LOCKSTEP_SERVER_METRICS_METRIC_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <map>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/histogram.h"

namespace lockstep::server {

using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

// Seconds since 1970, Prometheus's time format.
inline double UnixSeconds(WallTime time) {
  return static_cast<double>(ToUnixNanos(time)) / 1e9;
}

class MetricFamilies {
 public:
  void Gauge(const std::string& name, const std::string& help, double value,
             MetricLabels labels = {});
  void Counter(const std::string& name, const std::string& help, double value,
               MetricLabels labels = {});
  void AddHistogram(const std::string& name, const std::string& help,
                    const Histogram& histogram, MetricLabels labels = {});
  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  prometheus::ClientMetric* Add(const std::string& name,
                                const std::string& help,
                                prometheus::MetricType type,
                                MetricLabels labels);

  std::vector<prometheus::MetricFamily> families_;
  std::map<std::string, size_t> index_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_METRIC_FAMILIES_H_
