// The audit record: one JSON object per line in its own file. Bytes from a
// caller cannot end a line or add a field, so the server alone determines the
// file. The daemon's log has no such guarantee, because it carries the output
// of libraries.
//
//   {"time":"2026-01-31T12:00:00.123Z","caller":"user ann (submitter)",
//    "address":"ipv4:10.0.0.7:41234","method":"/lockstep.v1.JobService/
//    CancelJob","target":"mnist","code":"OK","refused":false}
//
// Empty `address`, `target` and `message` are omitted. A line with a `count`
// stands for that number of calls (audit_recorder.h).
#ifndef LOCKSTEP_COMMON_RPC_AUDIT_LOG_H_
#define LOCKSTEP_COMMON_RPC_AUDIT_LOG_H_

#include <cstddef>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/rpc/audit.h"

namespace lockstep {

struct AuditLogOptions {
  std::string path;
  // A file that would grow above this becomes NAME.1.EXT, NAME.1.EXT becomes
  // NAME.2.EXT, and so on up to `keep`, which is at least 1. If that fails, the
  // file keeps growing, and rotation is retried after `retry`.
  size_t max_bytes = size_t{64} << 20;
  size_t keep = 8;
  Duration retry = std::chrono::seconds(10);
};

// Thread-safe.
class AuditLog {
 public:
  // Appends to an existing file. FailedPrecondition if the file cannot be
  // opened, or its directory takes no other file, so that rotation would fail;
  // gives the reason.
  static StatusOr<std::unique_ptr<AuditLog>> Open(AuditLogOptions options);
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Hands the line to the kernel before it returns. Does not sync. A record
  // that cannot be written goes to the daemon's log as an error.
  void Write(const AuditRecord& record, WallTime now);

 private:
  struct Sink;
  AuditLog(std::string path, std::unique_ptr<Sink> sink);

  const std::string path_;
  const std::unique_ptr<Sink> sink_;
};

// Without the newline.
std::string AuditJson(const AuditRecord& record, WallTime now);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_AUDIT_LOG_H_
