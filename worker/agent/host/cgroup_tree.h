// A cgroup (v2) per rank, below a group that is for ranks:
//
//   BASE/rank-ID/     one rank and all it starts: limits, counters, cgroup.kill
//
// As packaged BASE is the group of lockstep-ranks.service, whose only process
// (worker/shim/holder.h) has divided it: it is there while the daemon is
// stopped, started again or upgraded. Without it BASE is the daemon's own
// group, where the daemon may divide that:
//
//   BASE/daemon/      the daemon and its shims: a group whose controllers are
//                     handed on may hold no process itself
//
// A group outlives the daemon, as its rank does; the next one finds it again by
// its ID, which is that of the shim's socket and so in the task record.
//
// The kernel's rules are those of Documentation/admin-guide/cgroup-v2.rst.
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

namespace lockstep {

// The operations on cgroupfs, for tests to stand in for a kernel.
class CgroupFiles {
 public:
  virtual ~CgroupFiles() = default;
  virtual StatusOr<std::string> Read(const std::string& path) = 0;
  // Into a file that is there.
  virtual Status Write(const std::string& path, std::string_view text) = 0;
  virtual Status MakeDir(const std::string& path) = 0;
  // FailedPrecondition while it holds processes (EBUSY).
  virtual Status RemoveDir(const std::string& path) = 0;
};
// Never destroyed.
CgroupFiles* RealCgroupFiles();

// Where a daemon finds itself.
struct CgroupPlace {
  // /proc/self/cgroup.
  std::string self;
  // This process.
  pid_t pid = 0;
  // A service manager that starts it again into the very group that it was in:
  // that fails (EBUSY) once this group's controllers are handed on while ranks
  // live in it. systemd from 254 on starts it in a group below
  // (DelegateSubgroup=daemon), where nothing is in the way.
  bool managed = false;
  // Of another program that keeps and has divided it, as in /proc/PID/cgroup:
  // "/system.slice/lockstep-ranks.service". "": there is none.
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
  // Below `mount` ("/sys/fs/cgroup"): in place.ranks, else in the daemon's own
  // group. FailedPrecondition with the sentence why limits cannot be enforced
  // here, which is about place.ranks where that is given; nothing is changed
  // then.
  static StatusOr<std::unique_ptr<CgroupTree>> Open(CgroupFiles* files,
                                                    const std::string& mount,
                                                    const CgroupPlace& place);

  // Creates the group of a rank with its limits memory.max, cpu.max and
  // pids.max, and returns its path. A 0 in `share` means no limit.
  StatusOr<std::string> Make(const std::string& id, const Resources& share);
  // BASE/rank-ID, whether it is there or not; of a rank that an earlier daemon
  // has put below its own group, that path.
  std::string PathOf(const std::string& id) const;
  bool Exists(const std::string& id) const;
  // Nothing where it is gone.
  std::optional<CgroupReading> Read(const std::string& id);
  // SIGKILL to everything in it, at once and without a gap for what is forked
  // meanwhile. A group that is gone is OK.
  Status Kill(const std::string& id);
  // FailedPrecondition while something is in it: call again. Gone is OK.
  Status Remove(const std::string& id);

 private:
  CgroupTree(CgroupFiles* files, std::string base, std::string earlier)
      : files_(files), base_(std::move(base)), earlier_(std::move(earlier)) {}

  static StatusOr<std::unique_ptr<CgroupTree>> DivideOwn(
      CgroupFiles* files, const std::string& mount, const CgroupPlace& place);
  bool IsThere(const std::string& path) const;

  CgroupFiles* const files_;
  const std::string base_;
  // Where ranks may be that an earlier daemon has started; the same, if not.
  const std::string earlier_;
};

// The number behind `key` at the start of a line of a flat keyed file.
std::optional<uint64_t> CgroupField(std::string_view text,
                                    std::string_view key);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_HOST_CGROUP_TREE_H_
