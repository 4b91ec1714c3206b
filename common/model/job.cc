#include "common/model/job.h"

#include <fmt/format.h>
#include <string.h>

#include <cerrno>

namespace lockstep {

std::string_view Name(JobState state) {
  switch (state) {
    case JobState::kQueued:
      return "QUEUED";
    case JobState::kPlacing:
      return "PLACING";
    case JobState::kPreparing:
      return "PREPARING";
    case JobState::kForming:
      return "FORMING";
    case JobState::kRunning:
      return "RUNNING";
    case JobState::kFinishing:
      return "FINISHING";
    case JobState::kSucceeded:
      return "SUCCEEDED";
    case JobState::kFailed:
      return "FAILED";
    case JobState::kCancelled:
      return "CANCELLED";
  }
  return "UNKNOWN";
}

std::string_view Name(TaskType type) {
  switch (type) {
    case TaskType::kChief:
      return "chief";
    case TaskType::kWorker:
      return "worker";
    case TaskType::kPs:
      return "ps";
    case TaskType::kEvaluator:
      return "evaluator";
  }
  return "unknown";
}

std::string_view Name(JobKind kind) {
  return kind == JobKind::kNative ? "native" : "program";
}

std::string_view Name(HangPolicy policy) {
  switch (policy) {
    case HangPolicy::kUnspecified:
      return "";
    case HangPolicy::kWarn:
      return "warn";
    case HangPolicy::kRestart:
      return "restart";
    case HangPolicy::kOff:
      return "off";
  }
  return "unknown";
}

std::string_view Name(NodeLoss loss) {
  switch (loss) {
    case NodeLoss::kUnspecified:
      return "";
    case NodeLoss::kAuto:
      return "auto";
    case NodeLoss::kNever:
      return "never";
  }
  return "unknown";
}

std::string_view Name(SignSource source) {
  switch (source) {
    case SignSource::kNone:
      return "none";
    case SignSource::kActivity:
      return "activity";
    case SignSource::kFiles:
      return "files";
    case SignSource::kLog:
      return "log";
    case SignSource::kSession:
      return "session";
  }
  return "unknown";
}

std::string_view Name(Reason reason) {
  switch (reason) {
    case Reason::kNone:
      return "NONE";
    case Reason::kNoNodes:
      return "NO_NODES";
    case Reason::kNoCapacity:
      return "NO_CAPACITY";
    case Reason::kBehindOthers:
      return "BEHIND_OTHERS";
    case Reason::kBackoff:
      return "BACKOFF";
    case Reason::kReleasing:
      return "RELEASING";
    case Reason::kPreparingNodes:
      return "PREPARING_NODES";
    case Reason::kStartingRanks:
      return "STARTING_RANKS";
    case Reason::kOutputMissing:
      return "OUTPUT_MISSING";
    case Reason::kNoCheckpoint:
      return "NO_CHECKPOINT";
    case Reason::kOutputFull:
      return "OUTPUT_FULL";
    case Reason::kCannotForm:
      return "CANNOT_FORM";
    case Reason::kFewerTasks:
      return "FEWER_TASKS";
    case Reason::kRunning:
      return "RUNNING";
    case Reason::kStoppingRanks:
      return "STOPPING_RANKS";
    case Reason::kNodeUnknown:
      return "NODE_UNKNOWN";
    case Reason::kCheckpointDamaged:
      return "CHECKPOINT_DAMAGED";
    case Reason::kRestoreOrdered:
      return "RESTORE_ORDERED";
    case Reason::kNotCharged:
      return "NOT_CHARGED";
    case Reason::kNodesApart:
      return "NODES_APART";
    case Reason::kResized:
      return "RESIZED";
    case Reason::kCompleted:
      return "COMPLETED";
    case Reason::kCancelledByUser:
      return "CANCELLED_BY_USER";
    case Reason::kRankExit:
      return "RANK_EXIT";
    case Reason::kRankSignal:
      return "RANK_SIGNAL";
    case Reason::kOutOfMemory:
      return "OUT_OF_MEMORY";
    case Reason::kNodeLost:
      return "NODE_LOST";
    case Reason::kPrepareRefused:
      return "PREPARE_REFUSED";
    case Reason::kPrepareTimeout:
      return "PREPARE_TIMEOUT";
    case Reason::kFormTimeout:
      return "FORM_TIMEOUT";
    case Reason::kExecFailed:
      return "EXEC_FAILED";
    case Reason::kMaxRunningTime:
      return "MAX_RUNNING_TIME";
    case Reason::kMaxWaitTime:
      return "MAX_WAIT_TIME";
    case Reason::kRestartBudget:
      return "RESTART_BUDGET";
    case Reason::kConfigMismatch:
      return "CONFIG_MISMATCH";
    case Reason::kDiverged:
      return "DIVERGED";
    case Reason::kRestartRequested:
      return "RESTART_REQUESTED";
    case Reason::kNodeDrained:
      return "NODE_DRAINED";
    case Reason::kStalled:
      return "STALLED";
    case Reason::kNodeForgotten:
      return "NODE_FORGOTTEN";
    case Reason::kPortTaken:
      return "PORT_TAKEN";
    case Reason::kCheckpointSaved:
      return "CHECKPOINT_SAVED";
    case Reason::kCoordinatorRestarted:
      return "COORDINATOR_RESTARTED";
    case Reason::kNoProgress:
      return "NO_PROGRESS";
    case Reason::kWorkerRestarted:
      return "WORKER_RESTARTED";
    case Reason::kImagePinned:
      return "IMAGE_PINNED";
    case Reason::kPrefetchFailed:
      return "PREFETCH_FAILED";
    case Reason::kPrepareNote:
      return "PREPARE_NOTE";
    case Reason::kRanksStopped:
      return "RANKS_STOPPED";
    case Reason::kRankFailedLate:
      return "RANK_FAILED_LATE";
    case Reason::kWorkLeftBehind:
      return "WORK_LEFT_BEHIND";
    case Reason::kNodeRegistered:
      return "NODE_REGISTERED";
    case Reason::kNodeRestarted:
      return "NODE_RESTARTED";
    case Reason::kNodeRebooted:
      return "NODE_REBOOTED";
    case Reason::kNodeSilent:
      return "NODE_SILENT";
    case Reason::kNodeBack:
      return "NODE_BACK";
    case Reason::kNodeDrain:
      return "NODE_DRAIN";
    case Reason::kNodeUndrain:
      return "NODE_UNDRAIN";
    case Reason::kNodeQuarantined:
      return "NODE_QUARANTINED";
    case Reason::kNodeGpuLost:
      return "NODE_GPU_LOST";
    case Reason::kNodeGpuBack:
      return "NODE_GPU_BACK";
    case Reason::kNodeGpuError:
      return "NODE_GPU_ERROR";
    case Reason::kNodeUnreachable:
      return "NODE_UNREACHABLE";
    case Reason::kNodeCooledDown:
      return "NODE_COOLED_DOWN";
    case Reason::kNodeAhead:
      return "NODE_AHEAD";
    case Reason::kNodeGrew:
      return "NODE_GREW";
    case Reason::kNodeApproved:
      return "NODE_APPROVED";
    case Reason::kOutputNotShared:
      return "OUTPUT_NOT_SHARED";
    case Reason::kCheckpointFailed:
      return "CHECKPOINT_FAILED";
    case Reason::kRepeatedFailure:
      return "REPEATED_FAILURE";
    case Reason::kRankLeftEarly:
      return "RANK_LEFT_EARLY";
    case Reason::kBackendReplaced:
      return "BACKEND_REPLACED";
    case Reason::kIdle:
      return "IDLE";
    case Reason::kSession:
      return "SESSION";
    case Reason::kRecovering:
      return "RECOVERING";
    case Reason::kSpare:
      return "SPARE";
    case Reason::kRecovered:
      return "RECOVERED";
    case Reason::kNodeGpuReclaim:
      return "NODE_GPU_RECLAIM";
    case Reason::kNodeGpuFree:
      return "NODE_GPU_FREE";
    case Reason::kNodeGpuWithheld:
      return "NODE_GPU_WITHHELD";
    case Reason::kNodeGpuReturned:
      return "NODE_GPU_RETURNED";
    case Reason::kNodeStuckProcess:
      return "NODE_STUCK_PROCESS";
    case Reason::kNodeGpuChecked:
      return "NODE_GPU_CHECKED";
  }
  return "UNKNOWN";
}

bool IsSameContent(const ImageContent& a, const ImageContent& b) {
  return (!a.id.empty() && a.id == b.id) ||
         (!a.digest.empty() && a.digest == b.digest);
}

const std::string& ShownDigest(const ImageContent& content) {
  return content.digest.empty() ? content.id : content.digest;
}

std::string_view PhaseName(JobState state) {
  switch (state) {
    case JobState::kQueued:
      return "queued";
    case JobState::kPlacing:
      return "placing";
    case JobState::kPreparing:
      return "preparing";
    case JobState::kForming:
      return "forming";
    case JobState::kRunning:
      return "running";
    case JobState::kFinishing:
      return "finishing";
    default:
      return "";
  }
}

bool IsFinal(JobState state) {
  return state == JobState::kSucceeded || state == JobState::kFailed ||
         state == JobState::kCancelled;
}

bool IsActive(JobState state) {
  return state == JobState::kPreparing || state == JobState::kForming ||
         state == JobState::kRunning || state == JobState::kFinishing;
}

std::string Describe(const ExitStatus& exit) {
  std::string text;
  switch (exit.how) {
    case ExitStatus::How::kCode:
      text = fmt::format("exit code {}", exit.value);
      break;
    case ExitStatus::How::kSignal: {
      const char* abbreviation = sigabbrev_np(exit.value);
      text = abbreviation != nullptr
                 ? fmt::format("killed by SIG{}", abbreviation)
                 : fmt::format("killed by signal {}", exit.value);
      break;
    }
    case ExitStatus::How::kExecErrno:
      text = fmt::format("could not be started ({})", strerror(exit.value));
      break;
  }
  if (exit.out_of_memory) text += ", out of memory";
  if (!exit.message.empty()) text += ": " + exit.message;
  return text;
}

int32_t ShellCode(const ExitStatus& exit) {
  switch (exit.how) {
    case ExitStatus::How::kCode:
      return exit.value;
    case ExitStatus::How::kSignal:
      return 128 + exit.value;
    case ExitStatus::How::kExecErrno:
      return exit.value == ENOENT ? 127 : 126;
  }
  return 1;
}

std::string TaskName(TaskType type, int32_t index) {
  return fmt::format("{} {}", Name(type), index);
}

std::string ReplicaName(TaskType type, int32_t index) {
  return fmt::format("{}-replica-{}",
                     type == TaskType::kChief ? "master" : Name(type), index);
}

}  // namespace lockstep
