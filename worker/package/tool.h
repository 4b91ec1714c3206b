// Runs a program to its end, as somebody else and not for long: pip, and the
// questions to an interpreter.
#ifndef LOCKSTEP_WORKER_PACKAGE_TOOL_H_
#define LOCKSTEP_WORKER_PACKAGE_TOOL_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/os/process.h"
#include "worker/package/cancellation.h"
#include "worker/package/unpack.h"

namespace lockstep {

// What a program may use that runs code of a job before the job has a place of
// its own. 0: as the daemon itself.
struct ToolLimits {
  // Of each process (prlimit(1)).
  uint64_t address_space_bytes = 0;
  uint64_t file_bytes = 0;
  Duration cpu_time{};
  // Of all processes of its user, more than there are; means nothing for root.
  uint64_t processes = 0;
  // A cgroup (v2) with limits of its own, for all that it starts; "": none.
  std::string cgroup = {};

  bool operator==(const ToolLimits&) const = default;
};

struct ToolOptions {
  // argv[0]: an absolute path, or a name of the daemon's PATH.
  std::vector<std::string> argv;
  std::vector<std::string> env;
  std::string cwd;
  // Absent: as the caller.
  std::optional<PackageUser> user;
  Duration timeout = std::chrono::minutes(5);
  ToolLimits limits = {};
};

struct ToolResult {
  ProcessExit exit;
  // Both streams together; the last 64 KiB.
  std::string output;
};

// When it has ended, or is ended, everything that it has started is killed, in
// whatever session it is by now: it is known by kToolVariable
// (common/os/marked_processes.h), unless it takes that away. All of it has
// ended when this returns. Errors: NotFound and PermissionDenied: there is no
// such program; DeadlineExceeded at `timeout`, with its last line; Unavailable:
// what it has started does not end; Cancelled.
StatusOr<ToolResult> RunTool(const ToolOptions& options, Cancellation* cancel);

// The last line that is not blank, cut to 400 printable bytes.
std::string LastLine(std::string_view output);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_PACKAGE_TOOL_H_
