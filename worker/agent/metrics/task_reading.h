// State of ranks and of the stream, for /metrics.
#ifndef LOCKSTEP_WORKER_AGENT_METRICS_TASK_READING_H_
#define LOCKSTEP_WORKER_AGENT_METRICS_TASK_READING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/agent/host/task_cgroup.h"
#include "worker/task/rank_page.h"

namespace lockstep::worker::agent {

// Bytes of a rank's log: sent by this daemon, and dropped before they were
// sent.
struct LogReading {
  uint64_t sent_bytes = 0;
  uint64_t dropped_bytes = 0;
  uint64_t gaps = 0;
};

// One rank. The last reading of a finished rank stays for a while.
struct TaskReading {
  std::string job;
  std::string role;
  int32_t index = 0;
  int32_t rank = 0;
  // It speaks for all ranks of the job.
  bool chief = false;
  // Generations of the job before this one.
  int32_t restarts = 0;
  bool ended = false;
  double cpu_seconds = 0;
  // Living ones: the rank and its children.
  int32_t processes = 0;
  int64_t memory_bytes = 0;
  int64_t memory_peak_bytes = 0;
  uint64_t read_bytes = 0;
  uint64_t write_bytes = 0;
  // Absent: unknown.
  std::optional<int64_t> network_sent_bytes;
  std::optional<int64_t> network_received_bytes;
  LogReading log;
  // Absent: the rank has no cgroup of its own.
  std::optional<TaskCgroupReading> cgroup;
  // Counters of its page; of ranks that joined.
  std::optional<task::RankCounters> counters;
  std::vector<int32_t> gpus;
};

struct AgentReadings {
  double cpus_offered = 0;
  int64_t memory_offered_bytes = 0;
  // The end of the daemon's certificate, in seconds since 1970; absent: it has
  // none.
  std::optional<double> certificate_end;
  std::vector<TaskReading> tasks;
  bool connected = false;
  uint64_t reconnects = 0;
  // Jobs whose working directories were removed because the disk was full.
  uint64_t dropped_work = 0;
  // Interpreters that are ready for a warm start, ranks that one became, and
  // interpreters that ended before.
  int64_t warm_ready = 0;
  uint64_t warm_starts = 0;
  uint64_t warm_failures = 0;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_METRICS_TASK_READING_H_
