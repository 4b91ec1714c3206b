// File access through an interface, so that tests can inject failures and lost
// writes.
//
// All durable data goes through FileSystem: checkpoints, records, node
// identity, certificates. Errors carry the path and the operation.
#ifndef LOCKSTEP_COMMON_BASE_FILE_H_
#define LOCKSTEP_COMMON_BASE_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

// Append-only. Not synchronised. Close() or the destructor closes the file.
// Only Sync() makes bytes durable.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual Status Append(std::string_view data) = 0;
  virtual Status Sync() = 0;
  virtual Status Close() = 0;
};

// Reads at any offset. Safe from any thread.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  // Reads up to `size` bytes at `offset` into `buffer`. Returns their number,
  // which is smaller than `size` only at the end of the file.
  virtual StatusOr<size_t> ReadAt(uint64_t offset, void* buffer,
                                  size_t size) = 0;
};

struct FileInfo {
  bool is_directory = false;
  uint64_t size = 0;
  uint32_t mode = 0;
  uid_t uid = 0;
  int64_t mtime_unix_nanos = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Creates or truncates. `mode` as for open(2), before umask.
  virtual StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path, mode_t mode = 0644) = 0;
  // Opens for appending and creates a missing file.
  virtual StatusOr<std::unique_ptr<WritableFile>> OpenAppend(
      const std::string& path, mode_t mode = 0644) = 0;
  // Returns the whole file. ResourceExhausted if it is larger than `limit`
  // bytes.
  virtual StatusOr<std::string> Read(const std::string& path,
                                     uint64_t limit = 64 << 20) = 0;
  // For files that do not fit in memory.
  virtual StatusOr<std::unique_ptr<ReadableFile>> OpenRead(
      const std::string& path);
  virtual StatusOr<FileInfo> Stat(const std::string& path) = 0;
  // Returns the names in `path`, sorted, without "." and "..".
  virtual StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
  // Creates parents too. Existing directories are OK.
  virtual Status MakeDirs(const std::string& path, mode_t mode = 0755) = 0;
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  virtual Status Remove(const std::string& path) = 0;
  // A missing path is OK.
  virtual Status RemoveAll(const std::string& path) = 0;
  virtual Status SyncDir(const std::string& path) = 0;

  bool Exists(const std::string& path) { return Stat(path).ok(); }

  // Writes a temporary file in the same directory, fsyncs it, renames it and
  // fsyncs the directory. The new contents survive a power loss after OK, the
  // old ones before it.
  Status WriteAtomic(const std::string& path, std::string_view data,
                     mode_t mode = 0644);
};

// Returns the machine's file system. Never destroyed; safe from any thread.
FileSystem* RealFileSystem();

// "a" + "b/c" -> "a/b/c". An absolute `b` is returned as it is.
std::string JoinPath(std::string_view a, std::string_view b);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_FILE_H_
