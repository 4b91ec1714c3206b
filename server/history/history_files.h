// Histories on disk: one file per job, NAME.UID.json, which is replaced as a
// whole, so a crash leaves the old one or the new one.
//
// At most kMaxHistoryFile (1.25 MiB) each; the oldest ones are deleted when they
// are too old or too many. Thread-safe. No call holds another one up for the
// time of a disk access.
#ifndef LOCKSTEP_SERVER_HISTORY_HISTORY_FILES_H_
#define LOCKSTEP_SERVER_HISTORY_HISTORY_FILES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "server/history/history_codec.h"

namespace lockstep::server {

struct HistoryFileLimits {
  Duration age = std::chrono::hours(24 * 90);
  uint64_t bytes = uint64_t{256} << 20;
};

class HistoryFiles {
 public:
  // `files` outlives this object. Reads the names of the files in `dir`, which
  // exists. Without it, or if it cannot be read, there are none; that is
  // logged.
  HistoryFiles(FileSystem* files, std::string dir,
               HistoryFileLimits limits = {});

  // Replaces the job's file.
  Status Save(const StoredHistory& history, WallTime now);
  // Nullopt if there is none. A file that is damaged is logged and from then on
  // counts as none.
  std::optional<StoredHistory> Read(const std::string& job,
                                    const std::string& uid);
  // Deletes the file of the job with this uid, if there is one.
  void Remove(const std::string& uid);
  // Deletes what is too old or too much, oldest first.
  void Sweep(WallTime now);
  // The size of all files.
  uint64_t bytes() const;

 private:
  struct File {
    uint64_t bytes = 0;
    WallTime written{};
    bool damaged = false;
  };

  std::string PathOf(const std::string& name) const;

  FileSystem* const files_;
  const std::string dir_;
  const HistoryFileLimits limits_;
  mutable Mutex mu_;
  // By name.
  std::map<std::string, File> index_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_HISTORY_HISTORY_FILES_H_
