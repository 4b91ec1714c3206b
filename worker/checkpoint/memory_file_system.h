// For tests: a file system in memory that loses power.
//
// What was not synced is gone after PowerLoss(): bytes of a file without
// Sync, and names in a directory without SyncDir, renames and removals
// included. That is the least POSIX promises; real file systems keep more.
// Every operation that changes something counts, and can be made the last one
// that works or the one that fails. Thread-safe.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_MEMORY_FILE_SYSTEM_H_
#define LOCKSTEP_WORKER_CHECKPOINT_MEMORY_FILE_SYSTEM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/file.h"
#include "common/base/mutex.h"

namespace lockstep::checkpoint {

class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem();

  // Changing operations so far.
  int operations() const;
  // The operation number `at` (counted as operations() does, from 1) fails
  // with ENOSPC and changes nothing; with `and_after` all later ones too.
  void FailAt(int at, bool and_after);
  void PowerLoss();

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
  // A file or a directory: what a process sees, and what the disk holds.
  struct Node {
    bool is_directory = false;
    std::string data, durable_data;
    std::map<std::string, std::shared_ptr<Node>> names, durable_names;
  };
  using NodePtr = std::shared_ptr<Node>;

  Status Count(std::string_view what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null where there is none.
  NodePtr Find(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StatusOr<NodePtr> Parent(const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Forget(Node* node);

  mutable Mutex mu_;
  NodePtr root_ ABSL_GUARDED_BY(mu_);
  int operations_ ABSL_GUARDED_BY(mu_) = 0;
  int fail_at_ ABSL_GUARDED_BY(mu_) = 0;
  bool fail_after_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_MEMORY_FILE_SYSTEM_H_
