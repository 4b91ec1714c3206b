// What /proc and cgroupfs tell about the processes of a rank. It stops none of
// them, and takes milliseconds.
//
// Safe from any thread. What cannot be read is left out: a process may end at
// any moment.
#ifndef LOCKSTEP_WORKER_EVIDENCE_RANK_PROCESSES_H_
#define LOCKSTEP_WORKER_EVIDENCE_RANK_PROCESSES_H_

#include <sys/types.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/model/evidence.h"
#include "common/os/procfs.h"

namespace lockstep::worker::evidence {

// The connections of network namespaces, each read once: the kernel walks its
// whole table for that, which takes about 5 ms. For the ranks of one capture.
// Thread-compatible.
class ConnectionTables {
 public:
  // The text of /proc/PID/net/`protocol` (tcp, tcp6).
  const std::string& Of(pid_t pid, const std::string& protocol);

 private:
  // By namespace and protocol. An empty text is that of a process that has
  // ended.
  std::map<std::pair<std::string, std::string>, std::string> tables_;
};

// Adds the descendants of `shim` in `all` (ReadAllProcesses): processes with
// their threads, and open sockets with their peers.
void AddProcesses(pid_t shim, const std::vector<ProcessStat>& all,
                  ConnectionTables* connections, RankEvidence* evidence);

// Adds pressure, memory and throttling of the cgroup in `directory`, or, if it
// is empty, the pressure of the host.
void AddPressures(const std::string& directory, RankEvidence* evidence);

// Where the user of the process may be asked for, and its program.
struct ProcessPlace {
  uid_t uid = 0;
  gid_t gid = 0;
  // The path of its executable; empty if it may not be read.
  std::string program;
  // argv[0].
  std::string called;
};
ProcessPlace PlaceOf(pid_t pid);

}  // namespace lockstep::worker::evidence

#endif  // LOCKSTEP_WORKER_EVIDENCE_RANK_PROCESSES_H_
