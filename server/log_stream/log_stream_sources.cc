// LogStream's logs: which there are, and their lines out of bytes.
#include <algorithm>
#include <utility>

#include "common/base/log_line.h"
#include "common/wire/value_wire.h"
#include "server/log_stream/log_stream.h"

namespace lockstep {
namespace {

// Of one log at a time, and of all together.
constexpr size_t kMaxReadBytes = 256 << 10;
constexpr size_t kMinReadBytes = 8 << 10;
constexpr size_t kMaxBufferBytes = 32 << 20;
// A line without end is cut: it must fit a message.
constexpr size_t kMaxOpenText = 512 << 10;
// A line in the store has at most this; what is longer is none of ours.
constexpr size_t kMaxRawLine = 4 * cri::kMaxLogLine;
// A message beside its text.
constexpr size_t kLineBytes = sizeof(v1::LogLine) + 64;

// Of what happened to a job: whether that is bad.
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
    case Reason::kCoordinatorRestarted:
    case Reason::kPrefetchFailed:
    case Reason::kPrepareNote:
    case Reason::kWorkLeftBehind:
    case Reason::kBackendReplaced:
      return Severity::kWarning;
    default:
      return Severity::kInfo;
  }
}

// The attempt that `generation` was; 0: none that started anything.
int32_t AttemptOf(const Job& job, Generation generation) {
  if (generation == job.generation) return job.attempt;
  for (const Attempt& attempt : job.attempts) {
    if (attempt.generation == generation) return attempt.ordinal;
  }
  return 0;
}

}  // namespace

void LogStream::AddSources(const Job& job, const std::vector<TaskStatus>& tasks,
                           Generation generation, int32_t attempt) {
  if (request_.attempt() != 0 && request_.attempt() != attempt) return;
  // Of nothing but events.
  if (request_.tasks_size() > 0 && tasks_.empty()) return;
  for (const TaskStatus& task : tasks) {
    std::string name = ReplicaName(task.type, task.index);
    if (!tasks_.empty() && !tasks_.contains(name)) continue;
    for (const RankStatus& rank : task.ranks) {
      if (request_.ranks_size() > 0 &&
          std::find(request_.ranks().begin(), request_.ranks().end(),
                    rank.rank) == request_.ranks().end()) {
        continue;
      }
      Source source;
      source.key = {job.uid, generation, rank.rank};
      source.attempt = attempt;
      source.type = task.type;
      source.index = task.index;
      source.task = name;
      Source& known = sources_.emplace(source.key, source).first->second;
      known.never_started =
          rank.state < RankState::kStarted && rank.restarts == 0;
      // The last start may never have come to be.
      known.life = rank.state < RankState::kStarted && rank.restarts > 0
                       ? rank.restarts - 1
                       : rank.restarts;
      known.may_go_on = rank.restarts > 0 ||
                        (job.spec.restart_worker_alone &&
                         generation == job.generation && !IsFinal(job.state));
    }
  }
}

void LogStream::FindSources(const Job& job) {
  for (const Attempt& attempt : job.attempts) {
    AddSources(job, attempt.tasks, attempt.generation, attempt.ordinal);
  }
  AddSources(job, job.tasks, job.generation, job.attempt);
  if (events_) TakeEvents(job);
}

void LogStream::TakeEvents(const Job& job) {
  const LogKey key{job.uid, 0, kServiceRank};
  Source& source = sources_[key];
  source.key = key;
  // Nobody waits for it: what there is comes with the job.
  source.never_started = true;
  source.done = true;
  for (const Event& event : job.events) {
    const int64_t time = ToUnixNanos(event.time);
    // Only the newest are kept, in order; several may be of one moment.
    if (time < newest_event_) continue;
    if (time > newest_event_) events_of_moment_.clear();
    newest_event_ = time;
    if (!events_of_moment_.insert(event.message).second) continue;
    const int32_t attempt = AttemptOf(job, event.generation);
    if (request_.attempt() != 0 && request_.attempt() != attempt) continue;
    const Severity severity = SeverityOf(event.reason);
    if (!filter_.Wants(time, severity, event.message)) continue;
    Source::Line entry;
    entry.order = time;
    entry.arrived = MonotonicNow();
    v1::LogLine& line = entry.line;
    *line.mutable_time() = ToProto(event.time);
    line.set_rank(kServiceRank);
    line.set_attempt(attempt);
    line.set_text(event.message);
    line.set_severity(static_cast<v1::Severity>(severity));
    line.set_task(std::string(kServiceTask));
    source.Push(std::move(entry));
  }
}

void LogStream::Source::Push(Line line) {
  line.bytes = line.line.text().size() + kLineBytes;
  bytes += line.bytes;
  lines.push_back(std::move(line));
}

void LogStream::Source::PushFront(Line line) {
  line.bytes = line.line.text().size() + kLineBytes;
  bytes += line.bytes;
  lines.push_front(std::move(line));
}

void LogStream::Source::PopFront() {
  bytes -= lines.front().bytes;
  lines.pop_front();
}

void LogStream::TakeLine(Source* source, std::string_view bytes,
                         MonoTime arrived) const {
  cri::LogLine parsed;
  std::string error;
  if (!cri::ParseLogLine(bytes, &parsed, &error)) {
    // Not ours to lose: shown as it is.
    parsed = {};
    parsed.text = bytes;
  }
  const std::string name =
      parsed.stream == cri::LogStream::kStderr ? "stderr" : "stdout";
  Source::Open& open = source->open[name];
  cri::AppendToLine(parsed.text, &open.text);
  open.unix_nanos = parsed.unix_nanos;
  open.changed = true;
  if (!parsed.full && open.text.size() < kMaxOpenText) return;
  const std::string text(cri::ShownLine(open.text));
  open = {};
  // Every line is looked at: one of a traceback is told by those before it.
  SeverityReader& reader = source->severity[name];
  if (!filter_.WantsText(parsed.unix_nanos, text)) return reader.Skip(text);
  const Severity severity = reader.Next(text);
  if (!filter_.WantsSeverity(severity)) return;
  source->newest = std::max(source->newest, parsed.unix_nanos);
  Source::Line entry;
  entry.order = source->newest;
  entry.arrived = arrived;
  entry.line = LineOf(*source, name, parsed.unix_nanos);
  entry.line.set_text(text);
  entry.line.set_severity(static_cast<v1::Severity>(severity));
  source->Push(std::move(entry));
}

v1::LogLine LogStream::LineOf(const Source& source, const std::string& stream,
                              int64_t unix_nanos) {
  v1::LogLine line;
  *line.mutable_time() = ToProto(FromUnixNanos(unix_nanos));
  line.set_rank(source.key.rank);
  line.set_attempt(source.attempt);
  line.set_stream(stream);
  line.set_task_type(ToProto(source.type));
  line.set_task_index(source.index);
  line.set_task(source.task);
  return line;
}

StatusOr<bool> LogStream::ReadSource(Source* source) {
  if (source->done && !source->may_go_on) return false;
  const auto ended_life = logs_->EndedLife(source->key);
  const bool ended = ended_life && *ended_life >= source->life;
  const size_t limit =
      std::clamp(kMaxBufferBytes / std::max<size_t>(1, sources_.size()),
                 kMinReadBytes, kMaxReadBytes);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string data,
                            logs_->Read(source->key, source->offset, limit));
  const MonoTime arrived = MonotonicNow();
  if (data.empty()) {
    source->done = ended;
    if (ended) {
      if (!source->rest.empty()) {
        TakeLine(source, source->rest, arrived);
        source->rest.clear();
        return true;
      }
    }
    return false;
  }
  source->done = false;
  source->offset += data.size();
  source->rest += data;
  size_t begin = 0;
  for (size_t end; (end = source->rest.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    TakeLine(source, std::string_view(source->rest).substr(begin, end - begin),
             arrived);
  }
  source->rest.erase(0, begin);
  if (source->rest.size() > kMaxRawLine) {
    TakeLine(source, source->rest, arrived);
    source->rest.clear();
  }
  return true;
}

}  // namespace lockstep
