#include "server/metrics/package_metrics.h"

#include "server/metrics/metric_families.h"

namespace lockstep::server {

std::vector<prometheus::MetricFamily> PackageMetrics::Collect() const {
  const PackageStats stats = store_->Stats();
  MetricFamilies out;
  out.Gauge("lockstep_packages", "Stored code packages.",
            static_cast<double>(stats.packages));
  out.Gauge("lockstep_package_bytes", "Bytes of stored code packages.",
            static_cast<double>(stats.bytes));
  const auto uploads = [&](const char* result, uint64_t count) {
    out.Counter("lockstep_package_uploads_total",
                "Uploaded packages, by result.", static_cast<double>(count),
                {{"result", result}});
  };
  uploads("stored", stats.stored);
  uploads("existed", stats.existed);
  uploads("failed", stats.failed);
  uploads("refused", stats.refused);
  out.Counter("lockstep_packages_removed_total",
              "Packages removed because no job needed them.",
              static_cast<double>(stats.removed));
  return out.Take();
}

}  // namespace lockstep::server
