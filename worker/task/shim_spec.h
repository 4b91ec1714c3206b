// Everything that a shim needs to start and supervise one rank.
//
// The worker daemon writes it into a memfd that the shim inherits
// (lockstep-shim FD), so neither the environment nor a file exposes it.
#ifndef LOCKSTEP_WORKER_TASK_SHIM_SPEC_H_
#define LOCKSTEP_WORKER_TASK_SHIM_SPEC_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::worker::task {

// The longest path that fits sockaddr_un with its final NUL.
inline constexpr size_t kMaxSocketPath = 107;
// Linux's limit for one argument or variable, including its final NUL
// (MAX_ARG_STRLEN of include/uapi/linux/binfmts.h).
inline constexpr size_t kMaxArgBytes = 128 * 1024 - 1;

// Additional fields for a rank that is the attached client of a container
// engine.
struct ContainerSpec {
  std::string name;  // Empty: the rank is a plain process.
  // Commands of the engine, run with the rank's environment; argv[0] is a
  // path. Of `signal` the argument "%" becomes the signal's number.
  std::vector<std::string> signal;
  std::vector<std::string> inspect;  // Prints "STATUS EXIT_CODE OOM_KILLED".
  std::vector<std::string> remove;   // Ends it, too; fine where there is none.
  // The container's first process is ours and reports the program's start and
  // end (worker/shim/init_report.h) on a pipe, its descriptor 3.
  bool reports = false;
};

struct ShimSpec {
  std::string job;
  uint64_t generation = 0;
  uint32_t rank = 0;

  // argv[0] is the program: a path (a relative one from `cwd`), or a name that
  // is looked for in the PATH of `env`.
  std::vector<std::string> argv;
  // The whole environment, "NAME=value"; nothing is inherited.
  std::vector<std::string> env;
  std::string cwd;  // Absolute.

  // Numbers, since a static program cannot ask the name service. Without
  // set_ids the rank runs as who the shim is.
  bool set_ids = false;
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> groups;
  uint32_t umask = 022;
  uint64_t core_limit = 0;  // Bytes of RLIMIT_CORE; UINT64_MAX: unlimited.

  // The log keeps its first `log_head_bytes` and about the newest
  // `log_tail_bytes` (log_files.h).
  std::string log_path;
  uint64_t log_head_bytes = uint64_t{16} << 20;
  uint64_t log_tail_bytes = uint64_t{64} << 20;
  // Appends to the log of an earlier start of the rank instead of creating it.
  bool log_append = false;

  std::string task_record_path;
  std::string exit_record_path;
  std::string socket_path;  // At most kMaxSocketPath bytes.
  std::string page_path;    // Only noted in the task record.

  // Required first from each connection; 16 to 64 bytes.
  std::string nonce;
  // Where not empty, the rank inherits these bytes as a sealed memfd, open at
  // `secret_fd` (at least 3): what the rank alone may read.
  std::string secret;
  uint32_t secret_fd = 3;
  std::vector<uint32_t> ports;  // Only noted in the task record.

  // Default time between SIGTERM and SIGKILL.
  int64_t grace_nanos = 1'000'000'000;
  // How long output that something outside the rank's tree may still hold
  // open is waited for after the tree is gone.
  int64_t drain_nanos = 2'000'000'000;

  // The directory of a cgroup (v2) that the rank enters before it becomes its
  // user, and that is killed with it. Empty: it stays where the shim is.
  std::string cgroup;

  ContainerSpec container;

  // The rank ends by this time of CLOCK_BOOTTIME, unless a daemon renews it
  // (ShimRequest::Kind::kFence). 0: it goes on.
  int64_t fence_nanos = 0;
};

std::string EncodeShimSpec(const ShimSpec& spec);
// Returns false and a sentence if `bytes` are damaged or invalid.
bool DecodeShimSpec(std::string_view bytes, ShimSpec* spec, std::string* error);
// What DecodeShimSpec checks beyond the form: a daemon asks before it starts.
bool CheckShimSpec(const ShimSpec& spec, std::string* error);

}  // namespace lockstep::worker::task

#endif  // LOCKSTEP_WORKER_TASK_SHIM_SPEC_H_
