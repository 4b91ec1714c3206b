// Metrics of BackupSchedule.
#ifndef LOCKSTEP_SERVER_METRICS_BACKUP_METRICS_H_
#define LOCKSTEP_SERVER_METRICS_BACKUP_METRICS_H_

#include <prometheus/collectable.h>

#include <vector>

#include "server/store/backup_schedule.h"

namespace lockstep::server {

std::vector<prometheus::MetricFamily> BackupFamilies(const BackupStats& stats,
                                                     Duration interval);

// Thread-safe.
class BackupMetrics final : public prometheus::Collectable {
 public:
  // `backups` outlives this object. Null if backups are disabled; then there
  // are no metrics.
  explicit BackupMetrics(const BackupSchedule* backups) : backups_(backups) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const BackupSchedule* const backups_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_BACKUP_METRICS_H_
