#include "server/metrics/metric_families.h"

#include <limits>
#include <utility>

namespace lockstep::server {

using prometheus::ClientMetric;
using prometheus::MetricType;

ClientMetric* MetricFamilies::Add(const std::string& name,
                                  const std::string& help, MetricType type,
                                  MetricLabels labels) {
  const auto [it, is_new] = index_.try_emplace(name, families_.size());
  if (is_new) families_.push_back({name, help, type, {}});
  ClientMetric metric;
  metric.label = std::move(labels);
  auto& metrics = families_[it->second].metric;
  metrics.push_back(std::move(metric));
  return &metrics.back();
}

void MetricFamilies::Gauge(const std::string& name, const std::string& help,
                           double value, MetricLabels labels) {
  Add(name, help, MetricType::Gauge, std::move(labels))->gauge.value = value;
}

void MetricFamilies::Counter(const std::string& name, const std::string& help,
                             double value, MetricLabels labels) {
  Add(name, help, MetricType::Counter, std::move(labels))->counter.value =
      value;
}

void MetricFamilies::AddHistogram(const std::string& name,
                                  const std::string& help,
                                  const Histogram& histogram,
                                  MetricLabels labels) {
  auto& out =
      Add(name, help, MetricType::Histogram, std::move(labels))->histogram;
  uint64_t below = 0;
  for (size_t i = 0; i < histogram.counts().size(); ++i) {
    below += histogram.counts()[i];
    ClientMetric::Bucket bucket;
    bucket.cumulative_count = below;
    bucket.upper_bound = i < histogram.bounds().size()
                             ? histogram.bounds()[i]
                             : std::numeric_limits<double>::infinity();
    out.bucket.push_back(bucket);
  }
  out.sample_count = below;
  out.sample_sum = histogram.sum();
}

}  // namespace lockstep::server
