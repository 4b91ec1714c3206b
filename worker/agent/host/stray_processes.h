// Finds and kills processes of tasks whose shim is gone.
//
// A rank dies with its shim (PDEATHSIG), but its child processes do not. Every
// process of a task has this variable in its environment:
//
//   LOCKSTEP_TASK=MARK.ID     MARK: of the daemon's state directory (below)
//                             ID: of this start of the rank; the name of its
//                             shim's socket, which is in the task record
//
// It identifies the process in any session, group or process tree. A program
// that removes the variable (`env -i`) is found by the daemon's records and
// adopted orphans (orphans.h), or in its cgroup.
//
// Never signals a bare number: a process is held by a pidfd and its start time
// is checked before its environment counts.
#ifndef LOCKSTEP_WORKER_AGENT_HOST_STRAY_PROCESSES_H_
#define LOCKSTEP_WORKER_AGENT_HOST_STRAY_PROCESSES_H_

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/os/marked_processes.h"
#include "common/os/procfs.h"
#include "worker/task/task_record.h"

namespace lockstep::worker::agent {

// A killed process ends within this time unless the kernel holds it.
inline constexpr Duration kEndTime = std::chrono::seconds(2);
inline constexpr char kTaskVariable[] = "LOCKSTEP_TASK";

// Returns the mark of the state directory `dir`: the content of DIR/mark, which
// is created if missing, and its inode. A copied directory has another mark, so
// its daemon leaves the original's processes alone.
StatusOr<std::string> DirectoryMark(FileSystem* files, const std::string& dir);

// The ID of a task by the path of its shim's socket: its name without ".sock".
std::string TaskIdOf(const std::string& socket_path);
// "MARK.ID".
std::string TaskMark(const std::string& directory_mark, const std::string& id);

// Returns whether the process with this environment belongs to the rank of
// `record`. `in_session` tells that it is in the session that the rank led;
// this decides if the environment lacks the task's ID.
bool IsOfTask(std::string_view environ, const task::TaskRecord& record,
              bool in_session);

// KillLeftovers sends SIGKILL to a rank, its tree and all other processes of
// its task after its shim is gone. If the rank has no container, also to
// `seen`, the recorded descendants of the shim, with their trees, and to
// orphans adopted since the shim started. Repeats until a scan finds none, for
// at most kEndTime. Returns how many processes it killed, and those that did
// not end.
struct Leftovers {
  int killed = 0;
  // Not for a process that only waits for its parent (a zombie).
  std::vector<ProcessId> left;
};
Leftovers KillLeftovers(const task::TaskRecord& record,
                        const std::vector<ProcessId>& seen = {});

// Sends SIGKILL to those of `all` that belong to a task of the directory with
// `directory_mark` but to none of `live` (IDs). `all` must have been read
// before `live`. Waits up to kEndTime for their end.
Leftovers KillStrays(const std::vector<ProcessStat>& all,
                     const std::string& directory_mark,
                     const std::set<std::string>& live);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_HOST_STRAY_PROCESSES_H_
