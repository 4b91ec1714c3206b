// Metrics of the PackageStore.
#ifndef LOCKSTEP_SERVER_METRICS_PACKAGE_METRICS_H_
#define LOCKSTEP_SERVER_METRICS_PACKAGE_METRICS_H_

#include <prometheus/collectable.h>

#include <vector>

#include "server/packages/package_store.h"

namespace lockstep::server {

// Thread-safe.
class PackageMetrics final : public prometheus::Collectable {
 public:
  // `store` outlives this object.
  explicit PackageMetrics(const PackageStore* store) : store_(store) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const PackageStore* const store_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_PACKAGE_METRICS_H_
