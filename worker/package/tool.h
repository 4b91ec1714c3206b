// Runs a program to its end with a time limit, optionally as another user: pip,
// and queries to an interpreter.
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

namespace lockstep::worker::package {

// Limits for a program that runs a job's code before the job has a cgroup. 0:
// the daemon's own limit.
struct ToolLimits {
  // Per process (prlimit(1)).
  uint64_t address_space_bytes = 0;
  uint64_t file_bytes = 0;
  Duration cpu_time{};
  // Limit of the processes of its user, in addition to the existing ones; has
  // no effect for root.
  uint64_t processes = 0;
  // A cgroup (v2) with limits, for all its processes; "": none.
  std::string cgroup = {};

  bool operator==(const ToolLimits&) const = default;
};

struct ToolOptions {
  // argv[0] is an absolute path, or a name in the daemon's PATH.
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
  // Both streams combined; the last 64 KiB.
  std::string output;
};

// Kills all descendants of the program when it ends, in any session: it finds
// them by kToolVariable (common/os/marked_processes.h), unless they remove it.
// All have ended when this returns. Errors: NotFound and PermissionDenied if
// the program cannot run; DeadlineExceeded at `timeout`, with the last line of
// output; Unavailable if descendants do not end; Cancelled.
StatusOr<ToolResult> RunTool(const ToolOptions& options, Cancellation* cancel);

// Returns the last non-blank line, cut to 400 printable bytes.
std::string LastLine(std::string_view output);

}  // namespace lockstep::worker::package

#endif  // LOCKSTEP_WORKER_PACKAGE_TOOL_H_
