// A host with its worker daemon. Pure values.
#ifndef LOCKSTEP_COMMON_MODEL_NODE_H_
#define LOCKSTEP_COMMON_MODEL_NODE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/model/job.h"
#include "common/model/resources.h"

namespace lockstep {

// One start of a worker daemon. Ordered by `counter`. The same counter with
// different nonces means two live copies of one node.
struct Incarnation {
  uint64_t counter = 0;
  uint64_t nonce = 0;

  bool operator==(const Incarnation&) const = default;
};

// The numbers are those of the proto of the same name.
enum class NodeState {
  kReady = 1,
  kUnknown = 2,
  kLost = 3,
  kDraining = 4,
  kDrained = 5,
  kQuarantined = 6,
};
inline constexpr NodeState kAllNodeStates[] = {
    NodeState::kReady,    NodeState::kUnknown, NodeState::kLost,
    NodeState::kDraining, NodeState::kDrained, NodeState::kQuarantined};
std::string_view Name(NodeState state);

// The host data that a worker daemon registers.
struct NodeInfo {
  NodeName name;
  Incarnation incarnation;
  std::string boot_id;
  std::string hostname;
  std::string version;
  // The IP address of the data plane.
  std::string address;
  std::string http_address;
  Resources capacity;
  std::vector<Gpu> gpus;
  bool limits_enforced = false;
  // A group of similar nodes, for metrics: [a-z0-9-]{1,63}.
  std::string pool = "default";
  // http_address speaks TLS. Older daemons do not report it.
  bool http_tls = false;
  // The reason that limits are not enforced.
  std::string limits_message;
  // Expiry of the daemon's certificate.
  std::optional<WallTime> certificate_end_time;
  // "podman 4.3.1". Empty if the node runs no containers.
  std::string container_engine;
  // The daemon can check GPUs (gpu_check.h).
  bool checks_gpus = false;

  bool operator==(const NodeInfo&) const = default;
};

// The driver's last values for a GPU. Unknown values are absent.
struct GpuUsage {
  int32_t index = 0;
  // The share of the last sample period, 0..1, in which a kernel ran and in
  // which memory was read or written.
  std::optional<double> utilization;
  std::optional<double> memory_access;
  std::optional<int64_t> memory_used_bytes;
  std::optional<double> power_watts;
  std::optional<double> temperature_celsius;
  // Uncorrected memory errors since the driver was loaded.
  std::optional<int64_t> uncorrected_errors = {};
  // A row of its memory waits for a reset to be replaced, and one could not be.
  std::optional<bool> remap_pending = {};
  std::optional<bool> remap_failed = {};
  // Lanes of its PCIe link, now and at most.
  std::optional<int32_t> pcie_width = {};
  std::optional<int32_t> pcie_width_max = {};
  // Active links to other GPUs.
  std::optional<int32_t> nvlinks = {};
  // Why its clocks are lowered to protect it: "hw_thermal". Empty: they are
  // not.
  std::string slowdown = {};
  // The share of the last sample period, 0..1, averaged over its
  // multiprocessors, in which a warp was resident, and in which the tensor
  // cores worked. Absent where the driver cannot measure it.
  std::optional<double> sm_activity = {};
  std::optional<double> tensor_activity = {};

  bool operator==(const GpuUsage&) const = default;
};

// An error that the driver reported.
struct GpuError {
  int32_t index = 0;
  int32_t xid = 0;

  bool operator==(const GpuError&) const = default;
};

// A process that should be gone and is not.
struct HeldProcess {
  // As the host counts.
  int64_t pid = 0;
  // Empty if /proc does not show the process.
  std::string user;
  std::string command;
  // "D" is a wait in the kernel that no signal ends.
  std::string state;
  // What it waits for in the kernel. Empty: unknown.
  std::string wait_channel;
  WallTime since{};
  // Memory of the GPU. Absent: unknown.
  std::optional<int64_t> gpu_memory_bytes;
  // The job of its rank. Empty: unknown.
  JobName job;

  bool operator==(const HeldProcess&) const = default;
};
// "process 4711 (python, user ann, state D in nv_wait, job resnet)".
std::string Describe(const HeldProcess& process);

// A GPU that is not back at its state from before its last rank.
struct GpuReclaim {
  int32_t index = 0;
  WallTime since{};
  int64_t memory_used_bytes = 0;
  // Of the GPU without ranks.
  int64_t baseline_bytes = 0;
  // At most kMaxReclaimProcesses.
  std::vector<HeldProcess> processes;
  // Of the rank that held it. Empty: unknown.
  JobName job;

  bool operator==(const GpuReclaim&) const = default;
};

// What the coordinator knows about a GPU.
enum class GpuState {
  kOk = 1,
  // The rank that held it has ended, and its memory or processes have not.
  kReclaim = 2,
  // A verdict on its errors and readings keeps work from it.
  kWithheld = 3,
  kSilent = 4,
  kChecking = 5,
};
// "OK", "RECLAIM", "WITHHELD", "SILENT", "CHECKING".
std::string_view Name(GpuState state);

inline constexpr size_t kMaxReclaimProcesses = 16;
inline constexpr size_t kMaxStuckProcesses = 64;
// "reclaim: process 4711 (...) still uses it" or "reclaim: 60 GiB of its memory
// are used, 1 GiB without ranks".
std::string Describe(const GpuReclaim& reclaim);

// A host's measurements over the last seconds.
struct NodeReadings {
  // 0..1 of the whole host.
  double cpu_utilization = 0;
  int64_t memory_available_bytes = 0;
  // The offered GPUs, in the order of NodeInfo::gpus.
  std::vector<GpuUsage> gpus;
  // Time of sending by the node's clock. Absent for an older daemon.
  std::optional<WallTime> send_time;
  // Those since the last readings.
  std::vector<GpuError> gpu_errors;
  // The time from a heartbeat to its answer, for the newest heartbeat that was
  // answered since the last readings.
  std::optional<Duration> round_trip = std::nullopt;
  // Offered GPUs that are not free although their rank has ended.
  std::vector<GpuReclaim> reclaims = {};
  // Processes of ended ranks that SIGKILL does not end.
  std::vector<HeldProcess> stuck_processes = {};

  bool operator==(const NodeReadings&) const = default;
};

enum class Goal { kPrepare = 1, kLaunch = 2, kGo = 3, kStop = 4, kForget = 5 };
std::string_view Name(Goal goal);

enum class GangPhase {
  kPreparing = 1,
  kPrepared = 2,
  kRefused = 3,
  kLaunched = 4,
  kStopping = 5,
  kStopped = 6,
};
std::string_view Name(GangPhase phase);

struct RankEvent {
  uint32_t number = 0;
  int32_t rank = 0;
  WallTime time{};
  Reason reason = Reason::kNone;
  std::string message;

  bool operator==(const RankEvent&) const = default;
};

// A rank failed to reach a peer or lost it. Both are ranks of the job.
struct LostPeer {
  int32_t rank = 0;
  int32_t peer = 0;
  std::string error;

  bool operator==(const LostPeer&) const = default;
};

// The state of one generation of a job on one node.
// When the ranks of a node end by themselves because the node is alone.
struct Fence {
  // After the daemon's last contact.
  Duration after{};
  // An answer of a neighbour is contact, too, not only the coordinator's.
  bool neighbours_count = false;

  bool operator==(const Fence&) const = default;
};

struct GangStatus {
  JobName job;
  std::string job_uid;
  Generation generation = 0;
  GangPhase phase = GangPhase::kPreparing;
  Cause refusal;
  std::vector<int32_t> ports;
  int32_t master_port = 0;
  std::vector<RankStatus> ranks;
  std::optional<Checkpoint> checkpoint;
  std::map<std::string, std::string> artifacts;
  std::vector<RankEvent> events;
  std::optional<int64_t> resumed_step;
  uint32_t directive_done = 0;
  // The highest Assignment::evidence whose evidence is on disk there.
  uint32_t evidence_done = 0;
  // In the order of the tasks, like `ports`.
  std::vector<TaskPreparation> preparations;
  std::map<std::string, int32_t> service_ports;
  std::vector<OutputFile> outputs;
  // After preparation: the content of each image of its spec on this node.
  std::vector<ImageContent> images = {};
  // From the node with rank 0: the generation's reduction plan.
  std::string reduction_plan = {};
  // After preparation: the content of the output directory's identity file on
  // this node. Empty if this node has not read it.
  std::string output_identity = {};
  // After the ranks stopped, in the order of the tasks. Empty if the job sets
  // its own working directory.
  std::vector<WorkDirectory> work = {};
  std::vector<LostPeer> lost_peers = {};
  // What the shims of all its ranks here will keep to, from the first report
  // on. Absent: the ranks go on however long the node is alone.
  std::optional<Fence> fence = {};

  bool operator==(const GangStatus&) const = default;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_NODE_H_
