// The record of a started rank: a file by which a restarted worker daemon finds
// it again.
//
// The shim writes it twice: before it forks (rank.pid 0) and, with the rank's
// pid, before the rank runs its program. So every running program has a record.
#ifndef LOCKSTEP_WORKER_TASK_TASK_RECORD_H_
#define LOCKSTEP_WORKER_TASK_TASK_RECORD_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::worker::task {

// A process by what never comes again within one boot: its number and when it
// started (clock ticks since boot, /proc/PID/stat field 22).
struct ProcessRef {
  int32_t pid = 0;  // 0: there is none.
  uint64_t start_time = 0;

  bool operator==(const ProcessRef&) const = default;
};

struct TaskRecord {
  std::string job;
  uint64_t generation = 0;
  uint32_t rank = 0;
  // Of /proc/sys/kernel/random/boot_id: with another one, every pid here is
  // of a machine state that is gone.
  std::string boot_id;
  ProcessRef shim;
  ProcessRef process;  // The rank itself.
  std::string nonce;
  std::string socket_path;
  std::string log_path;
  std::string exit_record_path;
  std::string page_path;
  std::string cwd;
  std::vector<uint32_t> ports;
  int64_t started_unix_nanos = 0;
  // Of a rank in a container: its engine's program and its name there. The
  // container may outlive every process in this record.
  std::string engine;
  std::string container;
};

std::string EncodeTaskRecord(const TaskRecord& record);
bool DecodeTaskRecord(std::string_view bytes, TaskRecord* record,
                      std::string* error);

}  // namespace lockstep::worker::task

#endif  // LOCKSTEP_WORKER_TASK_TASK_RECORD_H_
