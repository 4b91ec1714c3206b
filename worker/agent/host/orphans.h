// What ranks have left behind whose shim was killed, where no variable of their
// environment says so any more (`env -i`, stray_processes.h) and there is no
// cgroup.
//
// A shim is a child subreaper, and so is the daemon: what loses its shim
// becomes the daemon's child. Where the daemon is away at that moment it
// becomes init's; so the daemon writes down, about once a second, what descends
// from each shim, and it and the next one know these processes by their numbers
// and start times.
//
// What the daemon starts for itself has kToolVariable.
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

namespace lockstep {

// Makes this process the parent of what its descendants leave behind. To be
// called before it starts anything. FailedPrecondition: it has children
// already (a shell that became this program by exec), which, and what they
// leave, could not be told from a rank's.
Status BecomeSubreaper();

// Whether the process, with this environment, fell to this one, a subreaper, as
// its parent had ended. `since`: not one that started before (clock ticks since
// boot).
bool IsOrphan(const ProcessStat& process, const std::string& environ,
              uint64_t since);

// Those that descend from `shim`, as they are in `all`.
std::vector<ProcessId> DescendantsOf(pid_t shim,
                                     const std::vector<ProcessStat>& all);

// "PID START_TIME" in lines. What is no such line is passed over: a process
// that is found by it has to have the start time, too.
std::string EncodeProcesses(const std::vector<ProcessId>& processes);
std::vector<ProcessId> DecodeProcesses(std::string_view text);
// Writes them to the file `path`, unless it holds `known`, which is then what
// it holds. Not synced: nothing of it counts after a boot.
void NoteProcesses(FileSystem* files, const std::string& path,
                   const std::vector<ProcessId>& processes, std::string* known);

// Reaps children that no code of the daemon waits for. Code that starts a child
// waits for it within a few seconds of its end: a zombie that stays longer fell
// to this process.
class OrphanReaper {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(30);

  // To be called now and then. Costs a system call while there is no zombie.
  void Look(MonoTime now);

 private:
  std::map<std::pair<pid_t, uint64_t>, MonoTime> seen_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_HOST_ORPHANS_H_
