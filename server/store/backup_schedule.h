// Copies of a running coordinator's store, at regular times.
#ifndef LOCKSTEP_SERVER_STORE_BACKUP_SCHEDULE_H_
#define LOCKSTEP_SERVER_STORE_BACKUP_SCHEDULE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace lockstep::server {

struct BackupOptions {
  // The store, and the folder of its copies: made where it is missing.
  std::string store;
  std::string dir;
  // Above 0; a second at least passes.
  Duration interval = std::chrono::hours(1);
  // 1 or more; the oldest of more go.
  size_t keep = 24;
  // The number of the store's last commit: nothing is copied twice. From any
  // thread.
  std::function<int64_t()> version;
  // Not OK: none is made, for this reason; empty: there is always room.
  std::function<Status()> space = nullptr;
};

// "coordinator-20261124T021500Z.db": sorted by name is sorted by time.
std::string BackupName(WallTime time);
// nullopt: no name of a backup.
std::optional<WallTime> TimeOfBackup(const std::string& name);
// Which of the files in the folder go, so that `keep` backups stay. Other files
// never do. Pure.
std::vector<std::string> BackupsToRemove(std::vector<std::string> names,
                                         size_t keep);

struct BackupStats {
  // Of the newest whole backup in the folder.
  std::optional<WallTime> newest;
  uint64_t made = 0;
  uint64_t failed = 0;
  // A change of the store waits for its first backup since then.
  std::optional<WallTime> behind_since;
};

// Makes a backup one interval after the newest in the folder, if the store has
// changed, and verifies it: a thread of its own.
class BackupSchedule {
 public:
  // `clock` outlives it.
  BackupSchedule(BackupOptions options, const Clock* clock);
  ~BackupSchedule();
  BackupSchedule(const BackupSchedule&) = delete;
  BackupSchedule& operator=(const BackupSchedule&) = delete;

  BackupStats Stats() const;
  Duration interval() const { return options_.interval; }

 private:
  void Run();
  void Look();
  Status Make(WallTime now);
  void Prune();

  const BackupOptions options_;
  const Clock* const clock_;
  mutable Mutex mu_;
  CondVar wake_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  BackupStats stats_ ABSL_GUARDED_BY(mu_);
  // Of the thread: what the last backup has; -1: not known.
  int64_t copied_version_ = -1;
  std::thread thread_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_BACKUP_SCHEDULE_H_
