#include "server/log_stream/job_logs.h"

#include <algorithm>
#include <utility>

#include "common/wire/value_wire.h"
#include "server/log_stream/log_request.h"

namespace lockstep::server {
namespace {

// For one log, and for all together.
constexpr size_t kMaxReadBytes = 256 << 10;
constexpr size_t kMinReadBytes = 8 << 10;
constexpr size_t kMaxBufferBytes = 32 << 20;
constexpr int32_t kServiceRank = -1;

// Returns the severity of a job's event.
Severity SeverityOf(Reason reason) {
  switch (reason) {
    case Reason::kRankExit:
    case Reason::kRankSignal:
    case Reason::kOutOfMemory:
    case Reason::kNodeLost:
    case Reason::kPrepareRefused:
    case Reason::kPrepareTimeout:
    case Reason::kFormTimeout:
    case Reason::kExecFailed:
    case Reason::kMaxRunningTime:
    case Reason::kMaxWaitTime:
    case Reason::kRestartBudget:
    case Reason::kConfigMismatch:
    case Reason::kDiverged:
    case Reason::kStalled:
    case Reason::kNodeForgotten:
    case Reason::kOutputNotShared:
    case Reason::kCheckpointFailed:
      return Severity::kError;
    case Reason::kOutputMissing:
    case Reason::kNoCheckpoint:
    case Reason::kOutputFull:
    case Reason::kCheckpointDamaged:
    case Reason::kNodeUnknown:
    case Reason::kBackoff:
    case Reason::kRestartRequested:
    case Reason::kNodeDrained:
    case Reason::kPortTaken:
    case Reason::kNoProgress:
    case Reason::kWorkerRestarted:
    case Reason::kRecovering:
    case Reason::kCoordinatorRestarted:
    case Reason::kPrefetchFailed:
    case Reason::kPrepareNote:
    case Reason::kWorkLeftBehind:
    case Reason::kBackendReplaced:
    case Reason::kIdle:
      return Severity::kWarning;
    default:
      return Severity::kInfo;
  }
}

// Returns the attempt of `generation`, or 0 if it started no rank.
int32_t AttemptOf(const Job& job, Generation generation) {
  if (generation == job.generation) return job.attempt;
  for (const Attempt& attempt : job.attempts) {
    if (attempt.generation == generation) return attempt.ordinal;
  }
  return 0;
}

}  // namespace

JobLogs::JobLogs(LogStore* logs, const v1::StreamLogsRequest* request)
    : logs_(logs),
      request_(*request),
      // The constructor requires that it is OK.
      filter_(*LogFilter::Make(SelectionOf(request_))),
      events_(request_.include_events()) {
  for (const std::string& task : request_.tasks()) {
    if (task == kServiceTask) {
      events_ = true;
    } else {
      tasks_.insert(ReplicaOf(task));
    }
  }
}

void JobLogs::Find(const Job& job) {
  for (const Attempt& attempt : job.attempts) {
    AddTasks(job, attempt.tasks, attempt.generation, attempt.ordinal);
  }
  AddTasks(job, job.tasks, job.generation, job.attempt);
  if (events_) TakeEvents(job);
}

void JobLogs::AddTasks(const Job& job, const std::vector<TaskStatus>& tasks,
                       Generation generation, int32_t attempt) {
  if (request_.attempt() != 0 && request_.attempt() != attempt) return;
  // Only events are selected.
  if (request_.tasks_size() > 0 && tasks_.empty()) return;
  const bool is_current = generation == job.generation && !IsFinal(job.state);
  for (const TaskStatus& task : tasks) {
    const std::string name = ReplicaName(task.type, task.index);
    if (!tasks_.empty() && !tasks_.contains(name)) continue;
    for (const RankStatus& rank : task.ranks) {
      if (request_.ranks_size() > 0 &&
          std::find(request_.ranks().begin(), request_.ranks().end(),
                    rank.rank) == request_.ranks().end()) {
        continue;
      }
      const auto log = [&](size_t moves) -> RankLog& {
        const LogKey key{job.uid, generation, rank.rank,
                         static_cast<int32_t>(moves)};
        return all_
            .try_emplace(
                key, RankLog::Origin{key, attempt, task.type, task.index, name})
            .first->second;
      };
      // What it wrote on nodes that it has left. A lost one never says that
      // this is all, and the reader does not wait for it.
      RankStatus left = rank;
      left.restarts = 0;
      left.state = RankState::kPrepared;
      for (size_t moves = 0; moves < task.former_nodes.size(); ++moves) {
        log(moves).Update(left, /*may_restart=*/false);
      }
      log(task.former_nodes.size())
          .Update(rank, is_current && (job.spec.restart_worker_alone ||
                                       rank.recoverable));
    }
  }
}

void JobLogs::TakeEvents(const Job& job) {
  const LogKey key{job.uid, 0, kServiceRank};
  RankLog& log = all_.try_emplace(key, RankLog::OfEvents(key)).first->second;
  for (const Event& event : job.events) {
    const int64_t time = ToUnixNanos(event.time);
    // Only the newest are kept, in order; several may have the same time.
    if (time < newest_event_) continue;
    if (time > newest_event_) events_of_moment_.clear();
    newest_event_ = time;
    if (!events_of_moment_.insert(event.message).second) continue;
    const int32_t attempt = AttemptOf(job, event.generation);
    if (request_.attempt() != 0 && request_.attempt() != attempt) continue;
    const Severity severity = SeverityOf(event.reason);
    if (!filter_.Wants(time, severity, event.message)) continue;
    RankLog::Line entry;
    entry.order = time;
    entry.arrived = MonotonicNow();
    v1::LogLine& line = entry.line;
    *line.mutable_time() = ToProto(event.time);
    line.set_rank(kServiceRank);
    line.set_attempt(attempt);
    line.set_text(event.message);
    line.set_severity(static_cast<v1::Severity>(severity));
    line.set_task(std::string(kServiceTask));
    log.Push(std::move(entry));
  }
}

StatusOr<bool> JobLogs::Read(RankLog* log) {
  const size_t limit =
      std::clamp(kMaxBufferBytes / std::max<size_t>(1, all_.size()),
                 kMinReadBytes, kMaxReadBytes);
  return log->Read(logs_, filter_, limit);
}

bool JobLogs::AreOver() const {
  return std::all_of(all_.begin(), all_.end(),
                     [](const auto& entry) { return entry.second.is_over(); });
}

int64_t JobLogs::LinesRead() const {
  int64_t read = 0;
  for (const auto& [key, log] : all_) read += static_cast<int64_t>(log.size());
  return read;
}

int64_t JobLogs::KeptBytes() const {
  size_t kept = 0;
  for (const auto& [key, log] : all_) kept += log.KeptBytes();
  return static_cast<int64_t>(kept);
}

}  // namespace lockstep::server
