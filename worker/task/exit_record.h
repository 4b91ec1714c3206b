// How a rank ended: the authoritative file, written by its shim once the rank
// and all its processes have ended.
#ifndef LOCKSTEP_WORKER_TASK_EXIT_RECORD_H_
#define LOCKSTEP_WORKER_TASK_EXIT_RECORD_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "worker/task/task_record.h"

namespace lockstep::worker::task {

enum class ExitKind : uint8_t {
  kExited = 1,    // By itself: wait_status holds its code.
  kSignaled = 2,  // By a signal: wait_status holds which.
  // The program never ran: it or its directory does not exist, it is not
  // executable, or its user is not permitted. start_errno and `message` explain
  // it.
  kNotStarted = 3,
};

struct ExitRecord {
  std::string job;
  uint64_t generation = 0;
  uint32_t rank = 0;
  std::string boot_id;
  ProcessRef process;  // pid 0 if no process was created.

  ExitKind kind = ExitKind::kExited;
  int32_t wait_status = 0;  // As of wait(2); 0 for kNotStarted.
  int32_t start_errno = 0;
  std::string message;  // One sentence for people.

  // Use of the rank and of every reaped process of its tree.
  int64_t user_nanos = 0;
  int64_t system_nanos = 0;
  uint64_t max_rss_bytes = 0;  // The largest single process.

  int64_t start_unix_nanos = 0;
  int64_t end_unix_nanos = 0;
  int64_t start_mono_nanos = 0;  // CLOCK_MONOTONIC.
  int64_t end_mono_nanos = 0;

  // Leftover processes that were killed, and those that could not be: the
  // latter may still hold a GPU.
  uint32_t tree_killed = 0;
  uint32_t tree_left = 0;

  // All CRI bytes of the attempt (the log's end offset), and the output bytes
  // that could not be written: `log_error` explains it.
  uint64_t log_bytes = 0;
  uint64_t log_lost_bytes = 0;
  std::string log_error;

  // Processes of a rank in a container that the OOM killer killed.
  uint32_t oom_kills = 0;
  // Its shim ended it, because no daemon renewed its fence.
  bool fenced = false;

  bool operator==(const ExitRecord&) const = default;
};

// What `message` says of a fenced rank.
inline constexpr std::string_view kFencedMessage =
    "ended by its shim: the worker daemon of its node had no answer from the "
    "coordinator, nor one that counts from a neighbour, or did not run";

// Returns "exited with code 3", "killed by signal 9 (SIGKILL)", or the reason
// why it did not start.
std::string DescribeExit(const ExitRecord& record);
// Returns "SIGKILL", or "signal 40" for a signal without a name.
std::string SignalName(int signo);

std::string EncodeExitRecord(const ExitRecord& record);
bool DecodeExitRecord(std::string_view bytes, ExitRecord* record,
                      std::string* error);

}  // namespace lockstep::worker::task

#endif  // LOCKSTEP_WORKER_TASK_EXIT_RECORD_H_
