// Collects samples by metric family, in the order in which families first
// appear, for Prometheus's text format. Not thread-safe.
#ifndef LOCKSTEP_WORKER_AGENT_METRICS_METRIC_FAMILIES_H_
#define LOCKSTEP_WORKER_AGENT_METRICS_METRIC_FAMILIES_H_

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::worker::agent {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

inline double AsDouble(uint64_t value) { return static_cast<double>(value); }

class MetricFamilies {
 public:
  // A family's type and help are those of its first sample.
  void Add(prometheus::MetricType type, const std::string& name,
           const std::string& help, double value,
           const MetricLabels& labels = {}) {
    const auto [it, is_new] = places_.emplace(name, families_.size());
    if (is_new) families_.push_back({name, help, type, {}});
    prometheus::ClientMetric metric;
    for (const auto& [label, text] : labels) {
      metric.label.push_back({label, text});
    }
    if (type == prometheus::MetricType::Counter) {
      metric.counter.value = value;
    } else if (type == prometheus::MetricType::Gauge) {
      metric.gauge.value = value;
    }
    families_[it->second].metric.push_back(std::move(metric));
  }
  void Counter(const std::string& name, const std::string& help, double value,
               const MetricLabels& labels = {}) {
    Add(prometheus::MetricType::Counter, name, help, value, labels);
  }
  void Gauge(const std::string& name, const std::string& help, double value,
             const MetricLabels& labels = {}) {
    Add(prometheus::MetricType::Gauge, name, help, value, labels);
  }
  // `counts` has one value for each of `bounds`, and one above them.
  void Histogram(const std::string& name, const std::string& help,
                 std::span<const double> bounds,
                 std::span<const uint64_t> counts, double sum,
                 const MetricLabels& labels = {}) {
    Add(prometheus::MetricType::Histogram, name, help, 0, labels);
    prometheus::ClientMetric::Histogram& histogram =
        families_[places_.at(name)].metric.back().histogram;
    for (size_t i = 0; i < counts.size(); ++i) {
      histogram.sample_count += counts[i];
      histogram.bucket.push_back(
          {histogram.sample_count,
           i < bounds.size() ? bounds[i]
                             : std::numeric_limits<double>::infinity()});
    }
    histogram.sample_sum = sum;
  }
  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  std::map<std::string, size_t> places_;
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_METRICS_METRIC_FAMILIES_H_
