// For tests: a file system in memory that can lose power.
//
// PowerLoss() drops data that was not synced: bytes of a file without Sync, and
// names in a directory without SyncDir, including renames and removals. POSIX
// guarantees no more; real file systems keep more, in an unspecified order.
// Every modifying operation counts, and can be made the last one that works or
// the one that fails. A sync can be made a no-op. After a failed sync of a
// file, later ones succeed but keep none of the data that was unsynced, as on
// Linux. Thread-safe.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_MEMORY_FILE_SYSTEM_H_
#define LOCKSTEP_WORKER_CHECKPOINT_MEMORY_FILE_SYSTEM_H_

#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/file.h"
#include "common/base/mutex.h"

namespace lockstep::worker::checkpoint {

class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem();

  // Changing operations so far.
  int operations() const;
  // The operation number `at` (counted as operations() does, from 1) fails
  // with the errno `error` and changes nothing; with `and_after` all later
  // ones too. 0: none.
  void FailAt(int at, bool and_after, int error = ENOSPC);
  // Reading any path that contains `part` fails with the errno `error`; 0: no
  // more.
  void FailReads(const std::string& part, int error);
  // The syncs so far, in order: "/a/file", or "/a/directory/".
  std::vector<std::string> syncs() const;
  // The sync with this index in syncs() will do nothing, and return OK; -1:
  // none.
  void SkipSync(int index);
  void PowerLoss();
  // The same, but data that was not synced is kept or lost by chance: each
  // file's bytes and each directory's names.
  void PowerLoss(std::mt19937* random);

  StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                 mode_t mode) override;
  StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path,
                                                     mode_t mode) override;
  StatusOr<std::string> Read(const std::string& path, uint64_t limit) override;
  StatusOr<std::unique_ptr<ReadableFile>> OpenRead(
      const std::string& path) override;
  StatusOr<FileInfo> Stat(const std::string& path) override;
  StatusOr<std::vector<std::string>> List(const std::string& path) override;
  Status MakeDirs(const std::string& path, mode_t mode) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Status RemoveAll(const std::string& path) override;
  Status SyncDir(const std::string& path) override;

 private:
  friend class MemoryFile;
  // A file or a directory, as a process sees it and as the disk holds it.
  struct Node {
    bool is_directory = false;
    std::string data, durable_data;
    bool sync_failed = false;  // Writes are forgotten from then on.
    std::map<std::string, std::shared_ptr<Node>> names, durable_names;
  };
  using NodePtr = std::shared_ptr<Node>;

  // Counts a sync; whether it is to be done.
  bool CountSync(std::string what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status Count(std::string_view what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null where there is none.
  NodePtr Find(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StatusOr<NodePtr> Parent(const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `random` may be null: forget all.
  static void Forget(Node* node, std::mt19937* random);

  mutable Mutex mu_;
  NodePtr root_ ABSL_GUARDED_BY(mu_);
  int operations_ ABSL_GUARDED_BY(mu_) = 0;
  int fail_at_ ABSL_GUARDED_BY(mu_) = 0;
  bool fail_after_ ABSL_GUARDED_BY(mu_) = false;
  int fail_error_ ABSL_GUARDED_BY(mu_) = ENOSPC;
  std::vector<std::string> syncs_ ABSL_GUARDED_BY(mu_);
  int skip_sync_ ABSL_GUARDED_BY(mu_) = -1;
  std::string fail_reads_ ABSL_GUARDED_BY(mu_);
  int fail_reads_error_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_MEMORY_FILE_SYSTEM_H_
