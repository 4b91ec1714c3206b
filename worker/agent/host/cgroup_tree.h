// A cgroup (v2) per rank, below a group for ranks:
//
//   BASE/rank-ID/     one rank and its processes: limits, counters, cgroup.kill
//
// In packages BASE is the group of lockstep-ranks.service, whose only process
// (worker/shim/holder.h) divides it: it exists while the daemon is stopped,
// restarted or upgraded. Otherwise BASE is the daemon's own group, if the
// daemon may divide it:
//
//   BASE/daemon/      the daemon and its shims: a group that delegates its
//                     controllers must not contain processes
//
// A group outlives the daemon, like its rank. The next daemon finds it by its
// ID, which is that of the shim's socket in the task record.
//
// Documentation/admin-guide/cgroup-v2.rst has the kernel's rules.
// Thread-compatible. Nothing here blocks for longer than a write to cgroupfs.
#ifndef LOCKSTEP_WORKER_AGENT_HOST_CGROUP_TREE_H_
#define LOCKSTEP_WORKER_AGENT_HOST_CGROUP_TREE_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/model/resources.h"

namespace lockstep::worker::agent {

// Operations on cgroupfs; tests replace them.
class CgroupFiles {
 public:
  virtual ~CgroupFiles() = default;
  virtual StatusOr<std::string> Read(const std::string& path) = 0;
  // Writes to an existing file.
  virtual Status Write(const std::string& path, std::string_view text) = 0;
  virtual Status MakeDir(const std::string& path) = 0;
  // FailedPrecondition while it holds processes (EBUSY).
  virtual Status RemoveDir(const std::string& path) = 0;
};
// Never destroyed.
CgroupFiles* RealCgroupFiles();

// The daemon's place in the cgroup tree.
struct CgroupPlace {
  // /proc/self/cgroup.
  std::string self;
  // This process.
  pid_t pid = 0;
  // A service manager restarts the daemon into the same group. This fails
  // (EBUSY) once the group delegates controllers while ranks live in it.
  // systemd 254 and later can start it in a group below
  // (DelegateSubgroup=daemon), which works.
  bool managed = false;
  // Group that another program holds and has divided, as in /proc/PID/cgroup:
  // "/system.slice/lockstep-ranks.service". "" if there is none.
  std::string ranks{};
};

struct CgroupReading {
  uint64_t oom_kills = 0;
  double cpu_seconds = 0;
  int64_t memory_peak_bytes = 0;

  bool operator==(const CgroupReading&) const = default;
};

class CgroupTree {
 public:
  // Opens the tree below `mount` ("/sys/fs/cgroup"): in place.ranks, else in
  // the daemon's own group. FailedPrecondition explains why limits cannot be
  // enforced, for place.ranks if it is given; nothing is changed then.
  static StatusOr<std::unique_ptr<CgroupTree>> Open(CgroupFiles* files,
                                                    const std::string& mount,
                                                    const CgroupPlace& place);

  // Creates the group of a rank with its limits memory.max, cpu.max and
  // pids.max, and returns its path. A 0 in `share` means no limit.
  StatusOr<std::string> Make(const std::string& id, const Resources& share);
  // Returns BASE/rank-ID, which may not exist. For a rank that an earlier
  // daemon started below its own group, returns that path.
  std::string PathOf(const std::string& id) const;
  bool Exists(const std::string& id) const;
  // Nullopt if the group does not exist.
  std::optional<CgroupReading> Read(const std::string& id);
  // Sends SIGKILL to all its processes atomically, including forks. OK if the
  // group does not exist.
  Status Kill(const std::string& id);
  // FailedPrecondition while it contains processes: call it again. OK if the
  // group does not exist.
  Status Remove(const std::string& id);

 private:
  CgroupTree(CgroupFiles* files, std::string base, std::string earlier)
      : files_(files), base_(std::move(base)), earlier_(std::move(earlier)) {}

  static StatusOr<std::unique_ptr<CgroupTree>> DivideOwn(
      CgroupFiles* files, const std::string& mount, const CgroupPlace& place);
  bool IsThere(const std::string& path) const;

  CgroupFiles* const files_;
  const std::string base_;
  // Base of ranks of an earlier daemon; may be the same.
  const std::string earlier_;
};

// The number behind `key` at the start of a line of a flat keyed file.
std::optional<uint64_t> CgroupField(std::string_view text,
                                    std::string_view key);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_HOST_CGROUP_TREE_H_
