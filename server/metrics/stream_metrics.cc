#include "server/metrics/stream_metrics.h"

#include <algorithm>
#include <array>

#include "server/metrics/metric_families.h"

namespace lockstep::server {
namespace {

constexpr const char* kKindNames[] = {"jobs", "logs", "workers"};
static_assert(std::size(kKindNames) == kStreamKinds);

}  // namespace

StreamMetrics::Open::Open(StreamMetrics* metrics, StreamKind kind,
                          std::function<int64_t()> lag)
    : metrics_(metrics) {
  if (metrics_ == nullptr) return;
  MutexLock lock(&metrics_->mu_);
  at_ = metrics_->open_.emplace(metrics_->open_.end(), kind, std::move(lag));
}

StreamMetrics::Open::~Open() {
  if (metrics_ == nullptr) return;
  MutexLock lock(&metrics_->mu_);
  metrics_->open_.erase(at_);
}

std::vector<prometheus::MetricFamily> StreamMetrics::Collect() const {
  std::array<int64_t, kStreamKinds> streams{}, lags{};
  {
    MutexLock lock(&mu_);
    for (const auto& [kind, lag] : open_) {
      const auto i = static_cast<size_t>(kind);
      ++streams[i];
      lags[i] = std::max(lags[i], lag());
    }
  }
  MetricFamilies out;
  for (size_t i = 0; i < kStreamKinds; ++i) {
    out.Gauge("lockstep_watch_streams", "Open streams.",
              static_cast<double>(streams[i]), {{"kind", kKindNames[i]}});
  }
  for (size_t i = 0; i < kStreamKinds; ++i) {
    out.Gauge("lockstep_watch_lag_events",
              "Events that wait for the slowest reader.",
              static_cast<double>(lags[i]), {{"kind", kKindNames[i]}});
  }
  return out.Take();
}

}  // namespace lockstep::server
