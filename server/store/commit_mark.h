// What a store has promised, kept outside of its file.
//
// A damaged frame of a write-ahead log ends the log for SQLite: the commits
// behind it are gone, without a word, as they are after a power loss. The mark
// tells the two apart. It names the last commit that was answered, is synced
// before the answer, and lies in a file of its own (PATH.mark): a store that is
// older than its mark has lost something.
//
// The file has two slots, 4096 bytes apart, written in turn, so that a torn
// write leaves the one before. Format in docs/formats/store-mark.md.
#ifndef LOCKSTEP_SERVER_STORE_COMMIT_MARK_H_
#define LOCKSTEP_SERVER_STORE_COMMIT_MARK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/model/store_point.h"

namespace lockstep::server {

// "version 12 of epoch 3".
std::string Describe(const StorePoint& point);

// What the mark says.
struct Promise {
  StorePoint point;
  // When it was written, by the machine's clock; absent: by a version that did
  // not say so.
  std::optional<WallTime> time;
};
// "version 12 of epoch 3, written at 2026-01-31T12:00:00.123Z".
std::string Describe(const Promise& promise);

// Thread-compatible.
class CommitMark {
 public:
  // What the file at `path` says; nullopt: there is none. DataLoss: neither
  // slot can be read.
  static StatusOr<std::optional<Promise>> Read(const std::string& path);
  // Opens the file for writing, and makes it where it is missing.
  static StatusOr<CommitMark> Open(const std::string& path);

  // Durable when it is OK.
  Status Write(const StorePoint& point, WallTime now);

 private:
  CommitMark(std::string path, Fd fd, uint64_t sequence)
      : path_(std::move(path)), fd_(std::move(fd)), sequence_(sequence) {}

  std::string path_;
  Fd fd_;
  // Of the last slot that was written.
  uint64_t sequence_ = 0;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_COMMIT_MARK_H_
