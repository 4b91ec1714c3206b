// A job: its spec and its state. Pure values; proto/lockstep/v1/job_spec.proto
// documents each field. common/wire converts them to messages and back, and
// validates.
#ifndef LOCKSTEP_COMMON_MODEL_JOB_H_
#define LOCKSTEP_COMMON_MODEL_JOB_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/shared_value.h"
#include "common/model/rank_progress.h"
#include "common/model/resources.h"

namespace lockstep {

using Generation = uint64_t;  // 0: none yet
using NodeName = std::string;
using JobName = std::string;

// The numbers of these enums are those of the protos of the same name.
enum class JobKind { kNative = 1, kProgram = 2 };
// The ranks that must exit with 0 for the job to succeed. Submission settles
// kUnspecified. Jobs stored by older versions keep it and end as with kChief.
enum class EndWith { kUnspecified = 0, kAll = 1, kChief = 2 };
// What happens when a running job shows no progress. Unspecified: kRestart for
// native jobs, kWarn for programs.
enum class HangPolicy {
  kUnspecified = 0,
  kWarn = 1,
  kRestart = 2,
  kOff = 3,
};
// Which silent hosts of a program count as lost without an operator.
// Unspecified: kAuto.
enum class NodeLoss { kUnspecified = 0, kAuto = 1, kNever = 2 };
enum class TaskType { kChief = 1, kWorker = 2, kPs = 3, kEvaluator = 4 };

enum class JobState {
  kQueued = 1,
  kPlacing = 2,
  kPreparing = 3,
  kForming = 4,
  kRunning = 5,
  kFinishing = 6,
  kSucceeded = 7,
  kFailed = 8,
  kCancelled = 9,
};
inline constexpr JobState kAllJobStates[] = {
    JobState::kQueued,    JobState::kPlacing, JobState::kPreparing,
    JobState::kForming,   JobState::kRunning, JobState::kFinishing,
    JobState::kSucceeded, JobState::kFailed,  JobState::kCancelled};

enum class Reason {
  kNone = 0,
  kNoNodes = 1,
  kNoCapacity = 2,
  kBehindOthers = 3,
  kBackoff = 4,
  kReleasing = 5,
  kPreparingNodes = 6,
  kStartingRanks = 7,
  kOutputMissing = 9,
  kNoCheckpoint = 10,
  kOutputFull = 11,
  kCannotForm = 12,
  kFewerTasks = 13,
  kRunning = 20,
  kStoppingRanks = 21,
  kNodeUnknown = 22,
  kCheckpointDamaged = 30,
  kRestoreOrdered = 31,
  kNotCharged = 32,
  kNodesApart = 33,
  kResized = 34,
  kCompleted = 40,
  kCancelledByUser = 41,
  kRankExit = 42,
  kRankSignal = 43,
  kOutOfMemory = 44,
  kNodeLost = 45,
  kPrepareRefused = 46,
  kPrepareTimeout = 47,
  kFormTimeout = 48,
  kExecFailed = 49,
  kMaxRunningTime = 50,
  kMaxWaitTime = 51,
  kRestartBudget = 52,
  kConfigMismatch = 53,
  kDiverged = 54,
  kRestartRequested = 55,
  kNodeDrained = 56,
  kStalled = 57,
  kNodeForgotten = 58,
  kPortTaken = 59,
  kCheckpointSaved = 60,
  kCoordinatorRestarted = 61,
  kNoProgress = 62,
  kWorkerRestarted = 63,
  kImagePinned = 64,
  kPrefetchFailed = 65,
  kPrepareNote = 66,
  kRanksStopped = 67,
  kRankFailedLate = 68,
  kWorkLeftBehind = 69,
  kNodeRegistered = 70,
  kNodeRestarted = 71,
  kNodeRebooted = 72,
  kNodeSilent = 73,
  kNodeBack = 74,
  kNodeDrain = 75,
  kNodeUndrain = 76,
  kNodeQuarantined = 77,
  kNodeGpuLost = 78,
  kNodeGpuBack = 79,
  kNodeGpuError = 80,
  kNodeUnreachable = 81,
  kNodeCooledDown = 82,
  kNodeAhead = 83,
  kNodeGrew = 84,
  kNodeApproved = 85,
  kOutputNotShared = 90,
  kCheckpointFailed = 91,
  kRepeatedFailure = 92,
  kRankLeftEarly = 93,
  kBackendReplaced = 94,
  kIdle = 95,
  kSession = 97,
  kRecovering = 98,
  kSpare = 96,
  kRecovered = 99,
  kNodeGpuReclaim = 110,
  kNodeGpuFree = 111,
  kNodeGpuWithheld = 112,
  kNodeGpuReturned = 113,
  kNodeStuckProcess = 114,
  kNodeGpuChecked = 115,
};

enum class RankState { kPrepared = 1, kStarted = 2, kJoined = 3, kExited = 4 };
enum class DirectiveKind { kCheckpoint = 1, kStop = 2 };

// The text that users read: "QUEUED", "chief", "RANK_EXIT".
std::string_view Name(JobState state);
std::string_view Name(TaskType type);
std::string_view Name(JobKind kind);
std::string_view Name(Reason reason);
// "warn", "restart", "off"; kUnspecified: "".
std::string_view Name(HangPolicy policy);
// "auto", "never"; kUnspecified: "".
std::string_view Name(NodeLoss loss);
// Returns the phase of a state: "queued" ... "finishing". Final states: "".
std::string_view PhaseName(JobState state);
bool IsFinal(JobState state);
// True if the job may hold resources of a generation: PREPARING to FINISHING.
bool IsActive(JobState state);

struct Container {
  std::string image;
  // Replaces the image's ENTRYPOINT and CMD. If it is empty, argv follows
  // ENTRYPOINT and replaces CMD.
  std::vector<std::string> command;

  bool operator==(const Container&) const = default;
};

// The content that an image name resolved to.
struct ImageContent {
  // The name in the job.
  std::string image;
  // "sha256:" and 64 hex digits of the configuration. The same on every host.
  std::string id;
  // The same form for the manifest, as registries use it. Empty if the image
  // was never in a registry.
  std::string digest;
  // The node that reported it.
  NodeName node;

  bool operator==(const ImageContent&) const = default;
};

// True if both are the same image. Equal ids or equal digests suffice: engines
// use different ids for one image, and an image that was never in a registry
// has no digest.
bool IsSameContent(const ImageContent& a, const ImageContent& b);
// Returns the digest, or the id if there is no digest.
const std::string& ShownDigest(const ImageContent& content);

// A type of the site's machine table at the time of submission.
struct MachineType {
  std::string type;
  // The nominal size. RoleSpec::resources is what gets placed.
  Resources nominal;
  std::optional<double> ml_units_per_hour;

  bool operator==(const MachineType&) const = default;
};

enum class PackageFormat { kTree = 1, kSdist = 2, kWheel = 3 };

// An uploaded code package.
struct Package {
  // "sha256:" and 64 hex digits.
  std::string digest;
  int64_t bytes = 0;
  PackageFormat format = PackageFormat::kTree;
  std::string file_name;

  bool operator==(const Package&) const = default;
};

// The interpreter that installs and runs a job's packages.
struct Runtime {
  std::string name;
  // Absolute, or looked up in PATH of the node. Empty if the job has none.
  std::string python;
  bool allow_index = false;

  bool operator==(const Runtime&) const = default;
};

struct RoleSpec {
  TaskType type = TaskType::kChief;
  int32_t count = 1;
  int32_t ranks_per_task = 1;
  Resources resources;
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment;
  std::optional<Container> container = std::nullopt;
  std::optional<MachineType> machine = std::nullopt;

  bool operator==(const RoleSpec&) const = default;
};

struct CheckpointPolicy {
  int64_t interval_steps = 0;
  int32_t keep = 3;

  bool operator==(const CheckpointPolicy&) const = default;
};

// What a job may say of the variables that its ranks find. Every generation's
// ClusterSpec has a copy.
struct EnvironmentOptions {
  // The first task is "master" in TF_CONFIG, not "chief".
  bool master_in_tf_config = false;
  // Also those variables of Slurm that JAX and others look for.
  bool slurm_environment = false;
  // The value of "job" in TF_CONFIG; empty: left out.
  std::string tf_config_job;
  // "cluster" and "task" of TF_CONFIG are empty objects.
  bool empty_tf_config = false;

  bool operator==(const EnvironmentOptions&) const = default;
};

struct JobSpec {
  JobName name;
  JobKind kind = JobKind::kNative;
  // All versions of a job share its large, immutable parts. In rank order:
  // chief, worker, ps, evaluator.
  Shared<std::vector<RoleSpec>> roles;
  Shared<std::vector<std::string>> argv;
  Shared<std::map<std::string, std::string>> environment;
  std::string output_directory;
  CheckpointPolicy checkpoint;
  int32_t restart_budget = 3;
  std::optional<Duration> max_running_time;
  std::optional<Duration> max_wait_time;
  int32_t priority = 0;
  std::map<std::string, std::string> labels;
  std::string working_directory;
  std::string comment;
  std::vector<Package> packages;
  Runtime runtime;
  // Names of the daemon's variables that ranks inherit.
  std::vector<std::string> inherited_environment;
  EnvironmentOptions environment_options;
  bool restart_worker_alone = false;
  std::string job_dir;
  // Restricts the job to nodes of this pool. Empty for any.
  std::string pool;
  // The text of reduction_plan.h. If it is empty, the first generation makes
  // one.
  std::string reduction_plan;
  EndWith end_with = EndWith::kUnspecified;
  // With kChief and no parameter servers: how long workers may run after the
  // chief's end.
  Duration end_grace = std::chrono::minutes(5);
  HangPolicy hang = HangPolicy::kUnspecified;
  // Of programs: how long a rank may show no sign of progress; absent: learned.
  std::optional<Duration> stall_after;
  // Of programs: an expression for log lines that show progress (RE2). Empty:
  // the lines of common frameworks.
  std::string progress_pattern;
  // Of programs: which silent hosts count as lost without an operator, or
  // instead after how long a silence each of them does (server/core/silence.h).
  NodeLoss node_loss = NodeLoss::kUnspecified;
  std::optional<Duration> node_lost_timeout;
  // When no rank works (server/core/idle_watch.h). 0: never. Absent: as the
  // site says.
  std::optional<Duration> idle_notice;
  std::optional<Duration> idle_stop;
  // Of programs: nodes keep interpreters for ranks that start again.
  bool warm_starts = false;
  // Nodes that are held for the tasks of a node that is lost or left.
  int32_t spares = 0;
  // How long the ranks that are left hold their state while a lost node is
  // replaced. Absent: as the coordinator says.
  std::optional<Duration> hold;
  // When ranks are lost, the others train without them until they are back, as
  // long as so many tasks are complete. 0: they hold their state.
  int32_t elastic_min_tasks = 0;
  // Instead: the gang restarts with so many tasks or more, as there is room
  // (server/core/rescale.h).
  bool rescale = false;

  bool operator==(const JobSpec&) const = default;
};

struct Cause {
  Reason reason = Reason::kNone;
  std::string message;

  bool operator==(const Cause&) const = default;
};

struct ExitStatus {
  enum class How { kCode, kSignal, kExecErrno };
  How how = How::kCode;
  int32_t value = 0;
  std::string message;
  WallTime end_time{};
  bool victim = false;
  bool out_of_memory = false;
  // The reason that the rank itself reported, or kNone.
  Reason reason = Reason::kNone;
  // The place in the program that `message` comes from, "train.py:12". Empty if
  // unknown.
  std::string location = {};

  bool ok() const { return how == How::kCode && value == 0; }
  bool operator==(const ExitStatus&) const = default;
};
// "exit code 3", "killed by SIGKILL", "exec failed: No such file ...".
std::string Describe(const ExitStatus& exit);
// Returns the exit code of a shell: the code, 128 + signal, 126 or 127.
int32_t ShellCode(const ExitStatus& exit);

struct RankStatus {
  int32_t rank = 0;
  int32_t local_rank = 0;
  RankState state = RankState::kPrepared;
  int64_t pid = 0;
  std::optional<ExitStatus> exit;
  RankProgress progress;
  Usage usage;
  // How often it was restarted alone in this generation.
  int32_t restarts = 0;
  // Its process stays when other ranks are lost.
  bool recoverable = false;
  // The newest recovery of this generation after which it trains; 0: none.
  uint32_t recovery = 0;
  // It has left the communicator of recovery `parked - 1` and waits for the
  // next one; 0: never.
  uint32_t parked = 0;
  // Its process can train while other ranks are away.
  bool elastic = false;
  // The coordinator's: it is not a member of the newest recovery's
  // communicator, and the others train without it (server/core/elastic.h).
  bool away = false;
  // The coordinator's: the newest recovery in which it was no longer away; 0:
  // none.
  uint32_t returned = 0;

  bool operator==(const RankStatus&) const = default;
};

// The parts of a task's preparation, in order.
inline constexpr std::string_view kFetchPart = "fetch";
inline constexpr std::string_view kPortsPart = "ports";
inline constexpr std::string_view kPreflightPart = "preflight";
inline constexpr std::string_view kExecPart = "exec";

struct TimedPart {
  std::string part;
  Duration duration{};

  bool operator==(const TimedPart&) const = default;
};

// The preparation of a task before its program starts.
struct TaskPreparation {
  // The parts that have begun.
  std::vector<TimedPart> parts;
  // The running part, or empty.
  std::string current;
  std::string detail;

  bool operator==(const TaskPreparation&) const = default;
};

// A file or folder in a task's working directory.
struct WorkFile {
  // Relative to the directory.
  std::string path;
  // For a folder, the sum of the files that were counted.
  int64_t bytes = 0;
  WallTime modify_time{};
  bool directory = false;

  bool operator==(const WorkFile&) const = default;
};

// The contents of a task's working directory after its ranks ended.
struct WorkDirectory {
  int64_t files = 0;
  int64_t bytes = 0;
  // The entries at its top, the newest first; at most kMaxWorkEntries.
  std::vector<WorkFile> entries;
  // Not all entries were counted.
  bool truncated = false;

  bool operator==(const WorkDirectory&) const = default;
};
inline constexpr size_t kMaxWorkEntries = 20;

inline constexpr size_t kMaxFormerNodes = 100;

// The placement of one task in the current generation.
struct TaskStatus {
  TaskType type = TaskType::kChief;
  int32_t index = 0;
  NodeName node;
  std::string address;
  std::vector<int32_t> gpus;
  std::vector<RankStatus> ranks;
  TaskPreparation preparation = {};
  std::optional<WorkDirectory> work = std::nullopt;
  // Where it ran before in this generation, oldest first: a recovery moved it.
  std::vector<NodeName> former_nodes = {};

  bool operator==(const TaskStatus&) const = default;
};
// "worker 1".
std::string TaskName(TaskType type, int32_t index);
// "worker-replica-1", for the chief "master-replica-0", as in AI Platform.
std::string ReplicaName(TaskType type, int32_t index);

struct Checkpoint {
  int64_t step = 0;
  Generation generation = 0;
  std::string path;
  WallTime time{};
  int64_t bytes = 0;

  bool operator==(const Checkpoint&) const = default;
};

struct Attempt {
  int32_t ordinal = 0;
  Generation generation = 0;
  WallTime start_time{};
  WallTime end_time{};
  Cause end_cause;
  std::optional<int64_t> resumed_step;
  std::vector<TaskStatus> tasks;

  bool operator==(const Attempt&) const = default;
};

// Ranks were lost or came back while the others stayed
// (server/core/recovery.h).
struct InPlaceRecovery {
  Generation generation = 0;
  // Counts from 1 in each generation.
  uint32_t number = 0;
  // When it was decided, and when all its members trained again. No end: it
  // goes on, or another recovery or the end of the generation came first.
  WallTime start_time{};
  std::optional<WallTime> end_time = std::nullopt;
  Cause cause;
  // Ascending: those that got a new process; those that are away from then on;
  // those that were away before.
  std::vector<int32_t> replaced_ranks;
  std::vector<int32_t> away_ranks;
  std::vector<int32_t> returned_ranks;
  // The newest committed step that was known at the start.
  std::optional<int64_t> step = std::nullopt;

  bool operator==(const InPlaceRecovery&) const = default;
};
inline constexpr size_t kMaxInPlaceRecoveries = 16;

struct Event {
  WallTime time{};
  Generation generation = 0;
  Reason reason = Reason::kNone;
  std::string message;

  bool operator==(const Event&) const = default;
};

struct Directive {
  uint32_t id = 0;
  DirectiveKind kind = DirectiveKind::kCheckpoint;

  bool operator==(const Directive&) const = default;
};

// The checkpoint that a generation resumed from.
struct LineageEntry {
  Generation generation = 0;
  // The value until the ranks have read the disk and reported. The coordinator
  // may not know the newest checkpoint, so until then every complete one of
  // earlier generations counts.
  static constexpr int64_t kNotSaid = -1;
  int64_t start_step = 0;

  bool operator==(const LineageEntry&) const = default;
};

// A file or folder that a job left in its output directory.
struct OutputFile {
  std::string path;
  // "saved_model", "keras", "safetensors", "tensorboard", "checkpoint",
  // "torch", "onnx".
  std::string kind;
  int64_t bytes = 0;

  bool operator==(const OutputFile&) const = default;
};

struct Bill {
  double core_seconds = 0;
  double gpu_seconds = 0;
  double cost = 0;
  std::string currency;
  // Absent if a role has no machine type with a price.
  std::optional<double> ml_units = std::nullopt;

  bool operator==(const Bill&) const = default;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_JOB_H_
