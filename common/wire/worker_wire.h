// The messages of the worker stream: ToProto and FromProto of each, as
// convert.h says. No gRPC here.
#ifndef LOCKSTEP_COMMON_WIRE_WORKER_WIRE_H_
#define LOCKSTEP_COMMON_WIRE_WORKER_WIRE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/model/assignment.h"
#include "common/model/node.h"
#include "common/model/store_point.h"
#include "common/wire/value_wire.h"
#include "lockstep/v1/worker.pb.h"

namespace lockstep {

inline constexpr size_t kMaxWireKey = 256;
inline constexpr size_t kMaxWireValue = 32 << 10;
inline constexpr size_t kMaxLogChunk = 256 << 10;
inline constexpr size_t kMaxGangs = 4096;  // On one node.
inline constexpr size_t kMaxGangEvents = 1024;
inline constexpr size_t kMaxArtifacts = 64;
inline constexpr size_t kMaxOutputs = 100;
inline constexpr size_t kMaxImages = 64;
inline constexpr size_t kMaxPrefetched = 1024;
inline constexpr size_t kMaxGpuErrors = 256;
inline constexpr size_t kMaxOutputIdentity = 64;
inline constexpr size_t kMaxListedFiles = 1000;
inline constexpr int64_t kMaxFileChunk = 256 << 10;
// Jobs of which a node keeps working directories.
inline constexpr size_t kMaxWorkJobs = 100'000;
inline constexpr size_t kJobKeyBytes = 32;
inline constexpr int64_t kMaxVersion = 1'000'000'000'000'000'000;

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

LOCKSTEP_CONVERTS_ENUM(Goal, "goal", false)
LOCKSTEP_CONVERTS_ENUM(GangPhase, "phase", false)

LOCKSTEP_CONVERTS_AS(Registration, v1::Register, "register")
LOCKSTEP_CONVERTS(GangStatus, "gang_status")
LOCKSTEP_CONVERTS_AS(NodeHeartbeat, v1::Heartbeat, "heartbeat")
LOCKSTEP_CONVERTS_AS(WelcomeInfo, v1::Welcome, "welcome")
LOCKSTEP_CONVERTS(LocalTask, "task")
LOCKSTEP_CONVERTS(GangSpec, "spec")
// Also: PREPARE needs a spec, LAUNCH and GO a spec and a cluster spec.
LOCKSTEP_CONVERTS(Assignment, "assignment")
LOCKSTEP_CONVERTS_AS(LogPiece, v1::LogChunk, "log_chunk")
LOCKSTEP_CONVERTS_AS(LogAckInfo, v1::LogAck, "log_ack")
LOCKSTEP_CONVERTS(Prefetch, "prefetch")
// Each item is an image or a package; an image that is ready has its content.
LOCKSTEP_CONVERTS_AS(PrefetchReport, v1::PrefetchStatus, "prefetch_status")
// `path` may be anything: whoever opens it must keep within the directory.
LOCKSTEP_CONVERTS_AS(FileQuery, v1::FileRequest, "file_request")
LOCKSTEP_CONVERTS_AS(FileAnswer, v1::FileReply, "file_reply")

// One value, and three messages that it may become.
v1::RendezvousPut ToRendezvousPut(const RendezvousEntry& value);
v1::RendezvousGet ToRendezvousGet(const RendezvousEntry& value);
v1::RendezvousValue ToRendezvousValue(const RendezvousEntry& value);
StatusOr<RendezvousEntry> FromProto(const v1::RendezvousPut& value,
                                    std::string_view path = "rendezvous_put");
StatusOr<RendezvousEntry> FromProto(const v1::RendezvousGet& value,
                                    std::string_view path = "rendezvous_get");
StatusOr<RendezvousEntry> FromProto(const v1::RendezvousValue& value,
                                    std::string_view path = "rendezvous_value");

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_WIRE_WORKER_WIRE_H_
