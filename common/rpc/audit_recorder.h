// What is written of the calls: every act that was carried out, and of what was
// declined as much as cannot be used to push acts out of the audit log.
//
// Declined calls of one caller, method and answer are one line a second, with
// their number. While there is no space they are only counted: a full disk has
// to keep room for what people do to make some.
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
  // May be null: records go to the daemon's log. Outlives the recorder.
  AuditLog* log = nullptr;
  // Whether there is space for lines of declined calls; empty: there is.
  std::function<Status()> space;
  // Kinds of declined calls that are told apart. What comes beyond them is one
  // kind.
  size_t most_kinds = 1024;
};

// Thread-safe.
class AuditRecorder {
 public:
  explicit AuditRecorder(AuditRecorderOptions options);
  AuditRecorder(const AuditRecorder&) = delete;
  AuditRecorder& operator=(const AuditRecorder&) = delete;

  // Of refusals there is a line in the daemon's log, too: an operator looks
  // there first. `kind_of_method` stands for the method where a caller may have
  // made it up; empty: it is the method.
  void Record(AuditRecord record, Time now,
              const std::string& kind_of_method = "");
  // Writes the lines whose second is over, or all at the end. Call it every
  // second or so.
  void Flush(Time now, bool all = false);

 private:
  using Key = std::tuple<std::string, std::string, StatusCode>;
  struct Kind {
    MonoTime last_line{};
    // Since that line; `newest` is the last of them.
    int64_t waiting = 0;
    AuditRecord newest;
  };

  void Write(const AuditRecord& record, WallTime now) const;
  // Takes out of the table what is to be written by now, or all of it.
  std::vector<AuditRecord> TakeDue(MonoTime now, bool all)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status Space() const;

  const AuditRecorderOptions options_;
  Mutex mu_;
  std::map<Key, Kind> kinds_ ABSL_GUARDED_BY(mu_);
  // Declined calls that were not recorded for want of space.
  int64_t unrecorded_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_AUDIT_RECORDER_H_
