// A job as the whole system knows it: what was asked for, and what became of
// it. Pure values; proto/lockstep/v1/job_spec.proto documents each field.
// common/wire turns these into messages and back, and validates.
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
#include "common/model/resources.h"

namespace lockstep {

using Generation = uint64_t;  // 0: none yet
using NodeName = std::string;
using JobName = std::string;

// The numbers of these enums are those of the protos of the same name.
enum class JobKind { kNative = 1, kProgram = 2 };
// Which ranks have to exit with 0 for the job to succeed. kUnspecified is
// settled at submission; jobs stored by older versions keep it and end as with
// kChief.
enum class EndWith { kUnspecified = 0, kAll = 1, kChief = 2 };
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
  kRunning = 20,
  kStoppingRanks = 21,
  kNodeUnknown = 22,
  kCheckpointDamaged = 30,
  kRestoreOrdered = 31,
  kNotCharged = 32,
  kNodesApart = 33,
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
};

enum class RankState { kPrepared = 1, kStarted = 2, kJoined = 3, kExited = 4 };
enum class DirectiveKind { kCheckpoint = 1, kStop = 2 };

// "QUEUED", "chief", "RANK_EXIT": as users read them.
std::string_view Name(JobState state);
std::string_view Name(TaskType type);
std::string_view Name(JobKind kind);
std::string_view Name(Reason reason);
// The phase of a state: "queued" ... "finishing"; final states: "".
std::string_view PhaseName(JobState state);
bool IsFinal(JobState state);
// Holds or may hold resources of a generation: PREPARING to FINISHING.
bool IsActive(JobState state);

struct Container {
  std::string image;
  // Replaces the image's ENTRYPOINT and CMD; empty: argv follows ENTRYPOINT
  // and replaces CMD.
  std::vector<std::string> command;

  bool operator==(const Container&) const = default;
};

// What the name of an image stands for.
struct ImageContent {
  // As the job names it.
  std::string image;
  // "sha256:" and 64 hex digits: of the configuration. The same wherever the
  // image is.
  std::string id;
  // The same form, of the manifest, by which registries have it; empty: none
  // does.
  std::string digest;
  // Which node said so.
  NodeName node;

  bool operator==(const ImageContent&) const = default;
};

// Whether both stand for the same: one of them is enough, as engines name the
// same image by other ids, and what was never at a registry has no digest.
bool IsSameContent(const ImageContent& a, const ImageContent& b);
// What of it people are shown: the digest, of what has none the id.
const std::string& ShownDigest(const ImageContent& content);

// A type of the site's machine table, as it was when the job came.
struct MachineType {
  std::string type;
  // What the name promises; what is placed is RoleSpec::resources.
  Resources nominal;
  std::optional<double> ml_units_per_hour;

  bool operator==(const MachineType&) const = default;
};

enum class PackageFormat { kTree = 1, kSdist = 2, kWheel = 3 };

// A file of code that was uploaded.
struct Package {
  // "sha256:" and 64 hex digits.
  std::string digest;
  int64_t bytes = 0;
  PackageFormat format = PackageFormat::kTree;
  std::string file_name;

  bool operator==(const Package&) const = default;
};

// The interpreter that a job's packages are installed by and run with.
struct Runtime {
  std::string name;
  // Absolute, or looked up in PATH of the node; empty: the job has none.
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

struct JobSpec {
  JobName name;
  JobKind kind = JobKind::kNative;
  // What may be large never changes after submission, and is shared by all
  // versions of a job. In rank order: chief, worker, ps, evaluator.
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
  // Names of the daemon's variables that the ranks get too.
  std::vector<std::string> inherited_environment;
  bool master_in_tf_config = false;
  bool restart_worker_alone = false;
  bool slurm_environment = false;
  // The value of "job" in TF_CONFIG; empty: left out.
  std::string tf_config_job;
  std::string job_dir;
  // Only nodes of this pool; empty: any.
  std::string pool;
  // "cluster" and "task" of TF_CONFIG are empty objects.
  bool empty_tf_config = false;
  // The text of reduction_plan.h; empty: the first generation makes one.
  std::string reduction_plan;
  EndWith end_with = EndWith::kUnspecified;
  // With kChief and without parameter servers: how long workers may run on
  // after the chief's end.
  Duration end_grace = std::chrono::minutes(5);

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
  // What the rank itself named as the reason; kNone: nothing.
  Reason reason = Reason::kNone;
  // Where in the program `message` comes from, "train.py:12"; empty: unknown.
  std::string location = {};

  bool ok() const { return how == How::kCode && value == 0; }
  bool operator==(const ExitStatus&) const = default;
};
// "exit code 3", "killed by SIGKILL", "exec failed: No such file ...".
std::string Describe(const ExitStatus& exit);
// As a shell would give it: the code, 128 + signal, 126 or 127.
int32_t ShellCode(const ExitStatus& exit);

struct PhaseSeconds {
  double input = 0;
  double compute = 0;
  double allreduce = 0;
  double straggler_wait = 0;
  double optimizer = 0;
  double checkpoint = 0;
  double evaluation = 0;
  double other = 0;

  double Sum() const {
    return input + compute + allreduce + straggler_wait + optimizer +
           checkpoint + evaluation + other;
  }
  bool operator==(const PhaseSeconds&) const = default;
};

// The rank that held the others up most in the last steps.
struct Straggler {
  int32_t rank = 0;
  int32_t steps = 0;       // That were looked at, at most 100.
  int32_t late_steps = 0;  // Of them, those to which it came last.
  // Part of their time that would have been saved had it come with the last
  // but one.
  double cost = 0;

  bool operator==(const Straggler&) const = default;
};

// Of the values that the chief reports: floating-point operations that one
// sample takes, forward and backward. What they tell of a job's use of its GPUs
// is reckoned from it.
inline constexpr char kFlopsPerSample[] = "flops_per_sample";

struct RankProgress {
  int64_t step = -1;
  int64_t committed_step = -1;
  int64_t total_steps = 0;
  double epoch = 0;
  int64_t samples = 0;
  double loss = 0;
  double learning_rate = 0;
  PhaseSeconds phases;
  int64_t allreduce_bytes = 0;
  int64_t collectives = 0;
  int64_t skipped_steps = 0;
  int64_t checkpoints = 0;
  std::map<std::string, double> values;
  std::string phase;
  std::optional<Straggler> straggler = std::nullopt;
  double allreduce_busy_seconds = 0;

  bool operator==(const RankProgress&) const = default;
};

struct Usage {
  double cpu_seconds = 0;
  int64_t memory_bytes = 0;
  int64_t memory_peak_bytes = 0;
  std::optional<double> gpu_utilization;
  double seconds = 0;
  // The largest over a sample period.
  std::optional<double> cpu_peak_cores = std::nullopt;
  std::optional<double> gpu_utilization_peak = std::nullopt;
  std::optional<int64_t> gpu_memory_peak_bytes = std::nullopt;

  bool operator==(const Usage&) const = default;
};

struct RankStatus {
  int32_t rank = 0;
  int32_t local_rank = 0;
  RankState state = RankState::kPrepared;
  int64_t pid = 0;
  std::optional<ExitStatus> exit;
  RankProgress progress;
  Usage usage;
  // How often it was started again alone in this generation.
  int32_t restarts = 0;

  bool operator==(const RankStatus&) const = default;
};

// The parts of getting a task ready, in order.
inline constexpr std::string_view kFetchPart = "fetch";
inline constexpr std::string_view kPortsPart = "ports";
inline constexpr std::string_view kPreflightPart = "preflight";
inline constexpr std::string_view kExecPart = "exec";

struct TimedPart {
  std::string part;
  Duration duration{};

  bool operator==(const TimedPart&) const = default;
};

// How a task gets ready before its program may run.
struct TaskPreparation {
  // Those begun.
  std::vector<TimedPart> parts;
  // The part that goes on; empty: none.
  std::string current;
  std::string detail;

  bool operator==(const TaskPreparation&) const = default;
};

// A file or folder in a task's working directory.
struct WorkFile {
  // Below the directory.
  std::string path;
  // Of a folder: of all files in it, as far as they were counted.
  int64_t bytes = 0;
  WallTime modify_time{};
  bool directory = false;

  bool operator==(const WorkFile&) const = default;
};

// What the working directory of a task held when its ranks had ended.
struct WorkDirectory {
  int64_t files = 0;
  int64_t bytes = 0;
  // At its top, the newest first; at most kMaxWorkEntries.
  std::vector<WorkFile> entries;
  // There is more than was counted.
  bool truncated = false;

  bool operator==(const WorkDirectory&) const = default;
};
inline constexpr size_t kMaxWorkEntries = 20;

// Where one task runs in the current generation.
struct TaskStatus {
  TaskType type = TaskType::kChief;
  int32_t index = 0;
  NodeName node;
  std::string address;
  std::vector<int32_t> gpus;
  std::vector<RankStatus> ranks;
  TaskPreparation preparation = {};
  std::optional<WorkDirectory> work = std::nullopt;

  bool operator==(const TaskStatus&) const = default;
};
// "worker 1".
std::string TaskName(TaskType type, int32_t index);
// "worker-replica-1", the chief "master-replica-0": as AI Platform has it.
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

// Where a generation went on from.
struct LineageEntry {
  Generation generation = 0;
  // Until the ranks have looked at the disk, and said so: the coordinator may
  // not have heard of the newest checkpoint. Every complete one of the
  // generations before counts until then.
  static constexpr int64_t kNotSaid = -1;
  int64_t start_step = 0;

  bool operator==(const LineageEntry&) const = default;
};

// A file or folder that a job left below its output directory.
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
  // Absent: a role has no machine type with a price.
  std::optional<double> ml_units = std::nullopt;

  bool operator==(const Bill&) const = default;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_JOB_H_
