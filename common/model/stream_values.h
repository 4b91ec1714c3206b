// What the coordinator and a worker daemon say to each other beside
// assignments. Pure values; see proto/lockstep/v1/worker.proto for the
// protocol.
#ifndef LOCKSTEP_COMMON_MODEL_STREAM_VALUES_H_
#define LOCKSTEP_COMMON_MODEL_STREAM_VALUES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/job.h"
#include "common/model/node.h"
#include "common/model/store_point.h"

namespace lockstep {

// Register: who a node is, and everything that it has of any job.
struct Registration {
  NodeInfo node;
  std::vector<GangStatus> gangs;
  // Uids of the jobs whose working directories are there.
  std::vector<std::string> work_jobs;
  // The newest state of a store that the daemon has obeyed. Absent: it has
  // obeyed no coordinator yet, or it is an older daemon.
  std::optional<StorePoint> obeyed = std::nullopt;
  // Where others may test whether they reach it, on the node's address; 0:
  // nowhere, or it is an older daemon.
  int32_t probe_port = 0;
  // As in NodeReadings.
  std::vector<GpuReclaim> reclaims = {};

  bool operator==(const Registration&) const = default;
};

// Of each rank only rank, progress and usage count.
struct GangProgress {
  JobName job;
  Generation generation = 0;
  std::vector<RankStatus> ranks;

  bool operator==(const GangProgress&) const = default;
};

struct NodeHeartbeat {
  uint64_t sequence = 0;
  std::vector<GangProgress> gangs;
  NodeReadings readings;

  bool operator==(const NodeHeartbeat&) const = default;
};

struct WelcomeInfo {
  uint64_t epoch = 0;
  Duration heartbeat_interval{};
  Duration lease{};
  std::string cluster;
  // Of the coordinator's store; empty: it is an older coordinator.
  std::string history = {};
  std::vector<std::string> replaced_histories = {};
  // Of `epoch`; empty as the history is.
  std::string epoch_id = {};

  bool operator==(const WelcomeInfo&) const = default;
};

// RendezvousPut, RendezvousValue; of RendezvousGet without value.
struct RendezvousEntry {
  JobName job;
  Generation generation = 0;
  std::string key;
  std::string value;

  bool operator==(const RendezvousEntry&) const = default;
};

struct LogPiece {
  JobName job;
  std::string job_uid;
  Generation generation = 0;
  int32_t rank = 0;
  uint64_t offset = 0;
  std::string data;
  bool end = false;

  bool operator==(const LogPiece&) const = default;
};

struct LogAckInfo {
  JobName job;
  Generation generation = 0;
  int32_t rank = 0;
  uint64_t offset = 0;
  bool end = false;

  bool operator==(const LogAckInfo&) const = default;
};

struct PrefetchReport {
  std::vector<Prefetched> items;

  bool operator==(const PrefetchReport&) const = default;
};

// Asks for a part of a task's working directory.
struct FileQuery {
  uint64_t id = 0;
  JobName job;
  std::string job_uid;
  TaskType type = TaskType::kChief;
  int32_t index = 0;
  // Below the directory; empty: the directory itself.
  std::string path;
  // Absent: the entries of a folder; present: bytes of a file.
  struct Range {
    int64_t offset = 0;
    int64_t length = 0;

    bool operator==(const Range&) const = default;
  };
  std::optional<Range> range;

  bool operator==(const FileQuery&) const = default;
};

struct FileAnswer {
  uint64_t id = 0;
  // Not OK: the rest is empty.
  Status status;
  std::vector<WorkFile> entries;
  bool truncated = false;
  std::string data;
  // Of the whole file, when it was read.
  int64_t size = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_STREAM_VALUES_H_
