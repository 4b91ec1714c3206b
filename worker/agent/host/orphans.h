// Finds processes of ranks whose shim was killed, if no variable of their
// environment identifies them (`env -i`, stray_processes.h) and no cgroup does.
//
// Shims and the daemon are child subreapers, so a process that loses its shim
// becomes the daemon's child. If the daemon is not running at that moment, the
// process becomes init's child. Therefore the daemon records the descendants of
// each shim about once a second; it and the next daemon identify them by number
// and start time.
//
// Processes that the daemon starts for itself have kToolVariable.
#ifndef LOCKSTEP_WORKER_AGENT_HOST_ORPHANS_H_
#define LOCKSTEP_WORKER_AGENT_HOST_ORPHANS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/os/process.h"
#include "common/os/procfs.h"

namespace lockstep::worker::agent {

// Makes this process the subreaper of its descendants. Call it before starting
// any process. FailedPrecondition if the process already has children (a shell
// became this program by exec): their orphans would look like those of ranks.
Status BecomeSubreaper();

// Returns whether this subreaper adopted the process, with this environment,
// when its parent ended. `since`: the earliest start (clock ticks since boot).
bool IsOrphan(const ProcessStat& process, const std::string& environ,
              uint64_t since);

// Returns the descendants of `shim` among `all`.
std::vector<ProcessId> DescendantsOf(pid_t shim,
                                     const std::vector<ProcessStat>& all);

// Encodes lines of "PID START_TIME". Decoding skips malformed lines: a process
// must also match the start time.
std::string EncodeProcesses(const std::vector<ProcessId>& processes);
std::vector<ProcessId> DecodeProcesses(std::string_view text);
// Writes them to the file `path`, unless it already contains `known`; sets
// `known` to the file's content. Not synced: the content is useless after a
// boot.
void NoteProcesses(FileSystem* files, const std::string& path,
                   const std::vector<ProcessId>& processes, std::string* known);

// Reaps adopted children. Code that starts a child waits for it within a few
// seconds of its end, so a zombie that stays longer was adopted.
class OrphanReaper {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(30);

  // Call it periodically. Costs one system call if there is no zombie.
  void Look(MonoTime now);

 private:
  std::map<std::pair<pid_t, uint64_t>, MonoTime> seen_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_HOST_ORPHANS_H_
