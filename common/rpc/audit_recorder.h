// Records calls for audit: every successful act, and rejected calls at a
// limited rate, so that rejected calls cannot push acts out of the audit log.
//
// Rejected calls of one caller, method and answer share one line per second,
// with their number. While space is short they are only counted: acts that free
// space on a full disk must still be recorded.
#ifndef LOCKSTEP_COMMON_RPC_AUDIT_RECORDER_H_
#define LOCKSTEP_COMMON_RPC_AUDIT_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/rpc/audit.h"
#include "common/rpc/audit_log.h"

namespace lockstep {

struct AuditRecorderOptions {
  // Null if records go to the daemon's log. Outlives the recorder.
  AuditLog* log = nullptr;
  // Checks that there is space for lines of rejected calls. Empty if there
  // always is.
  std::function<Status()> space;
  // The number of distinct kinds of rejected calls. All further ones share one
  // kind.
  size_t most_kinds = 1024;
};

// Thread-safe.
class AuditRecorder {
 public:
  explicit AuditRecorder(AuditRecorderOptions options);
  AuditRecorder(const AuditRecorder&) = delete;
  AuditRecorder& operator=(const AuditRecorder&) = delete;

  // Access denials also go to the daemon's log, where operators look first.
  // `kind_of_method` replaces the method if a caller may have invented it;
  // empty to use the method.
  void Record(AuditRecord record, Time now,
              const std::string& kind_of_method = "");
  // Writes the lines whose second is over, or all at shutdown. Call it about
  // once per second.
  void Flush(Time now, bool all = false);

 private:
  using Key = std::tuple<std::string, std::string, StatusCode>;
  struct Kind {
    MonoTime last_line{};
    // Calls since that line; `newest` is the last of them.
    int64_t waiting = 0;
    AuditRecord newest;
  };

  void Write(const AuditRecord& record, WallTime now) const;
  // Removes and returns the records that are due by `now`, or all.
  std::vector<AuditRecord> TakeDue(MonoTime now, bool all)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status Space() const;

  const AuditRecorderOptions options_;
  Mutex mu_;
  std::map<Key, Kind> kinds_ ABSL_GUARDED_BY(mu_);
  // Rejected calls that were not recorded because space was short.
  int64_t unrecorded_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_AUDIT_RECORDER_H_
