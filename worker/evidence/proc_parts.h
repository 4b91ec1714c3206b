// Takes apart the files of /proc and cgroupfs that evidence needs and
// common/os/procfs.h does not have. Pure; safe from any thread.
#ifndef LOCKSTEP_WORKER_EVIDENCE_PROC_PARTS_H_
#define LOCKSTEP_WORKER_EVIDENCE_PROC_PARTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/evidence.h"

namespace lockstep::worker::evidence {

// /proc/PID/status.
struct ProcessStatus {
  uint32_t uid = 0;
  uint32_t gid = 0;
  int64_t resident_bytes = 0;
  int64_t swap_bytes = 0;
  // Of the process that traces it; 0: none.
  int64_t tracer = 0;
};
ProcessStatus ParseProcessStatus(std::string_view text);

// The name of the system call that /proc/PID/syscall tells: "futex",
// "syscall 451" for one without a name here, "" while it runs or sleeps in
// another way.
std::string SystemCallOf(std::string_view text);

// The functions of /proc/PID/stack, one per line: "futex_wait_queue".
std::string KernelStackOf(std::string_view text);

// The sockets of /proc/PID/net/tcp or tcp6 whose inodes are in `inodes`.
std::vector<SocketEvidence> ParseSockets(std::string_view text,
                                         std::string_view protocol,
                                         const std::set<uint64_t>& inodes);

// Adds the numbers of a pressure file (cpu.pressure) as "cpu.some.avg10" and
// "cpu.full.avg10", in percent.
void AddPressure(std::string_view text, std::string_view name,
                 std::map<std::string, double>* readings);

// Adds the number in a file of one ("memory.max") as `name`; "max" is none.
void AddNumber(std::string_view text, std::string_view name,
               std::map<std::string, double>* readings);

// Adds those lines "KEY NUMBER" of `text` whose keys are in `keys`, as
// "PREFIX.KEY".
void AddNumbers(std::string_view text, std::string_view prefix,
                const std::set<std::string_view>& keys,
                std::map<std::string, double>* readings);

}  // namespace lockstep::worker::evidence

#endif  // LOCKSTEP_WORKER_EVIDENCE_PROC_PARTS_H_
