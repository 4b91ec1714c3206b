// Evidence about running ranks: what each of its processes does at one moment,
// as the daemon of its node sees it from outside, and how it is asked for.
#ifndef LOCKSTEP_COMMON_MODEL_EVIDENCE_H_
#define LOCKSTEP_COMMON_MODEL_EVIDENCE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/job.h"

namespace lockstep {

// Of one rank. What is beyond them is left out, and a note says so.
inline constexpr size_t kMaxEvidenceProcesses = 32;
inline constexpr size_t kMaxEvidenceThreads = 64;
inline constexpr size_t kMaxEvidenceFrames = 128;
inline constexpr size_t kMaxEvidenceSockets = 128;
inline constexpr size_t kMaxEvidenceReadings = 256;
inline constexpr size_t kMaxEvidenceLines = 200;
inline constexpr size_t kMaxEvidenceNotes = 32;
inline constexpr size_t kMaxFlightRecords = 64;
// Bytes of a name, and of a longer text.
inline constexpr size_t kMaxEvidenceName = 256;
inline constexpr size_t kMaxEvidenceText = 2048;

struct StackFrame {
  // "torch.utils.data.dataloader", "train", "libc.so.6".
  std::string module;
  // "DataLoader.__next__", "pthread_cond_wait".
  std::string function;
  // "train.py", without folders.
  std::string file;
  // 0: unknown.
  int32_t line = 0;
  // Not of the program itself: an installed package, a shared library.
  bool library = false;

  bool operator==(const StackFrame&) const = default;
};

struct ThreadEvidence {
  int64_t id = 0;
  std::string name;
  // As in /proc: R, S, D, T ...; empty: unknown.
  std::string state;
  // The function of the kernel in which it sleeps, and the name of its system
  // call; empty: none, or not readable.
  std::string wait_channel;
  std::string system_call;
  // Where the kernel may be asked: one function per line, innermost first.
  std::string kernel_stack;
  bool main = false;
  bool holds_gil = false;
  // Innermost first; empty if the stack was not read.
  std::vector<StackFrame> frames;

  bool operator==(const ThreadEvidence&) const = default;
};

// Sources of stacks.
inline constexpr char kPySpySource[] = "py-spy";
inline constexpr char kNativeSource[] = "libdw";

struct ProcessEvidence {
  int64_t pid = 0;
  int64_t parent = 0;
  // As in /proc/PID/comm.
  std::string command;
  std::string state;
  double cpu_seconds = 0;
  int64_t resident_bytes = 0;
  int64_t swap_bytes = 0;
  // Of all threads; `threads` has the first ones.
  int64_t thread_count = 0;
  // Where the stacks come from; empty: they were not read.
  std::string stack_source;
  // Why they were not.
  std::string stack_error;
  std::vector<ThreadEvidence> threads;

  bool operator==(const ProcessEvidence&) const = default;
};

struct SocketEvidence {
  // "tcp", "tcp6".
  std::string protocol;
  std::string local;
  std::string peer;
  // "ESTABLISHED".
  std::string state;
  // Bytes that the program has not read, and that the peer has not confirmed.
  int64_t receive_queue = 0;
  int64_t send_queue = 0;

  bool operator==(const SocketEvidence&) const = default;
};

// A collective operation in PyTorch's flight recorder.
struct FlightRecord {
  // Of the process group: "0 (default_pg)".
  std::string group;
  // Counts the group's operations, from 1: equal on all of its ranks.
  int64_t sequence = 0;
  // "all_reduce".
  std::string operation;
  // "scheduled", "started", kFlightCompleted.
  std::string state;

  bool operator==(const FlightRecord&) const = default;
};
inline constexpr char kFlightCompleted[] = "completed";

struct RankEvidence {
  int32_t rank = 0;
  NodeName node;
  WallTime time{};
  Duration took{};
  // The rank's first process first, then its descendants. Empty: none lives.
  std::vector<ProcessEvidence> processes;
  std::vector<SocketEvidence> sockets;
  // By name: "memory.current", "cpu.some.avg10", "gpu0.utilization".
  std::map<std::string, double> readings;
  // The newest lines of its log.
  std::vector<std::string> log_lines;
  // What could not be found out, and why; what was cut.
  std::vector<std::string> notes;
  // What its session said last; empty and -1 if it has none.
  std::string phase;
  int64_t step = -1;
  // How it had ended before: "exit code 0". Empty: it ran.
  std::string ended = {};
  // Lines of NCCL's RAS subsystem about the communicators of the job. Of the
  // rank that serves it on its node.
  std::vector<std::string> nccl_ras = {};
  // The newest ones, oldest first.
  std::vector<FlightRecord> flight_records = {};

  bool operator==(const RankEvidence&) const = default;
};

// Asks a daemon for evidence about ranks of one generation there.
struct EvidenceQuery {
  // Unique within its stream.
  uint64_t id = 0;
  JobName job;
  Generation generation = 0;
  // Empty: all that run there.
  std::vector<int32_t> ranks;
  // Without, only what /proc tells, which takes milliseconds.
  bool stacks = false;
  // 0: none.
  int32_t log_lines = 0;
  // For all ranks together.
  Duration within{};
  // Not empty: what was kept of the generation before it was stopped, of the
  // job with this uid.
  std::string kept_uid = {};

  bool operator==(const EvidenceQuery&) const = default;
};

// One of several answers to a query: each has one rank, or an error.
struct EvidenceAnswer {
  uint64_t id = 0;
  Status status;
  // Absent in the last one if no rank was left.
  std::optional<RankEvidence> evidence;
  bool last = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_EVIDENCE_H_
