#include "server/metrics/backup_metrics.h"

#include "server/metrics/metric_families.h"

namespace lockstep::server {

std::vector<prometheus::MetricFamily> BackupFamilies(const BackupStats& stats,
                                                     Duration interval) {
  MetricFamilies out;
  const auto seconds = [](WallTime time) {
    return ToSeconds(time.time_since_epoch());
  };
  if (stats.newest) {
    out.Gauge("lockstep_store_backup_timestamp_seconds",
              "Time of the newest backup of the store, since unix epoch.",
              seconds(*stats.newest));
  }
  if (stats.behind_since) {
    out.Gauge("lockstep_store_backup_behind_timestamp_seconds",
              "Time of the first change that no backup has, since "
              "unix epoch; absent: none.",
              seconds(*stats.behind_since));
  }
  out.Gauge("lockstep_store_backup_interval_seconds",
            "Time between two scheduled backups of the store.",
            ToSeconds(interval));
  const auto tries = [&](const char* result, uint64_t count) {
    out.Counter("lockstep_store_backups_total",
                "Scheduled backups of the store, by result.",
                static_cast<double>(count), {{"result", result}});
  };
  tries("made", stats.made);
  tries("failed", stats.failed);
  return out.Take();
}

std::vector<prometheus::MetricFamily> BackupMetrics::Collect() const {
  if (backups_ == nullptr) return {};
  return BackupFamilies(backups_->Stats(), backups_->interval());
}

}  // namespace lockstep::server
