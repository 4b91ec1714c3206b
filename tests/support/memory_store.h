// A store that forgets when its Memory goes, and fails when it is told to.
#ifndef LOCKSTEP_TESTS_SUPPORT_MEMORY_STORE_H_
#define LOCKSTEP_TESTS_SUPPORT_MEMORY_STORE_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "server/store/job_rows.h"
#include "server/store/store.h"

namespace lockstep {

// Keeps rows as bytes, as a disk does: what cannot be stored and read again
// is found by every test. Several in a row may share one: a coordinator that
// is started again. Thread-safe.
class MemoryStore final : public server::Store {
 public:
  using Rows = std::map<std::pair<server::JobTable, int64_t>, std::string>;
  struct StoredRows {
    Rows rows;
    server::StoredVersion version;
  };

  StatusOr<server::StoreSnapshot> Load() override;
  Status Commit(const server::StoreBatch& batch) override;

  // Each commit answers this until it is OK again.
  void FailWith(Status status);
  int64_t commits() const;
  // Sum over all commits.
  int64_t written_jobs() const;

  // What it holds now, to be restored later.
  struct Backup {
    int64_t version = 0;
    std::map<std::string, StoredRows> jobs;
    std::map<std::string, std::string> nodes;
    std::set<std::string> deleted;
  };
  Backup MakeBackup() const;
  // As `lockstep-coordinator restore` does: the next Load has another history.
  void Restore(const Backup& backup);
  // As it was after the first `epochs` starts, put back behind the
  // coordinator's back (an image of the disk): the history stays.
  void PutBack(const Backup& backup, uint64_t epochs);

 private:
  mutable Mutex mu_;
  Status failure_ ABSL_GUARDED_BY(mu_);
  uint64_t epoch_ ABSL_GUARDED_BY(mu_) = 0;
  std::string history_ ABSL_GUARDED_BY(mu_) = std::string(kHistoryDigits, 'a');
  std::vector<StorePoint> replaced_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, server::EpochStart> epoch_starts_ ABSL_GUARDED_BY(mu_);
  Generation generation_floor_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t version_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t commits_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t written_jobs_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, StoredRows> jobs_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> nodes_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> deleted_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<std::string, std::string>, std::string> requests_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_SUPPORT_MEMORY_STORE_H_
