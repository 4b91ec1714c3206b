#include "server/service/log_stream.h"

#include <algorithm>
#include <utility>

#include "common/base/log_line.h"
#include "common/wire/value_wire.h"

namespace lockstep {
namespace {

// Of one log at a time, and of all together.
constexpr size_t kMaxReadBytes = 256 << 10;
constexpr size_t kMinReadBytes = 8 << 10;
constexpr size_t kMaxBufferBytes = 32 << 20;
// Well below the 4 MiB that a gRPC message may have.
constexpr size_t kMaxMessageBytes = 1 << 20;
// Lines are kept in memory until the end of the log is reached.
constexpr int64_t kMaxTail = 100'000;
// A reader who follows looks at the job's state at least so often.
constexpr Duration kPoll = std::chrono::milliseconds(500);
// How long after the end of a job its last lines are waited for: by a reader
// that follows, and by one that only wants what is there.
constexpr Duration kLastLines = std::chrono::seconds(30);
constexpr Duration kLastLinesUnasked = std::chrono::seconds(5);

// How long a line waits for older ones of other ranks, which are on their way
// from other hosts; and how old it is when it need not any more.
constexpr Duration kHold = std::chrono::milliseconds(300);
constexpr int64_t kOldNanos = 2'000'000'000;
// While much is read of some logs, the others are looked at so often.
constexpr Duration kLookAround = std::chrono::milliseconds(100);

int64_t Nanos(const google::protobuf::Timestamp& time) {
  return time.seconds() * 1'000'000'000 + time.nanos();
}

}  // namespace

Status CheckLogRequest(const v1::StreamLogsRequest& request) {
  if (request.attempt() < 0) {
    return InvalidArgument("attempt: must be 0 (all) or more, not {}",
                           request.attempt());
  }
  if (request.tail() < 0 || request.tail() > kMaxTail) {
    return InvalidArgument("tail: must be 0 (all) to {}, not {}", kMaxTail,
                           request.tail());
  }
  if (request.ranks_size() > kMaxRanks) {
    return InvalidArgument("ranks: names more than {}", kMaxRanks);
  }
  for (const int32_t rank : request.ranks()) {
    if (rank < 0) {
      return InvalidArgument("ranks: must be 0 or more, not {}", rank);
    }
  }
  if (request.has_since()) return FromProto(request.since(), "since").status();
  return OkStatus();
}

void LogStream::AddSources(const Job& job, const std::vector<TaskStatus>& tasks,
                           Generation generation, int32_t attempt) {
  if (request_.attempt() != 0 && request_.attempt() != attempt) return;
  for (const TaskStatus& task : tasks) {
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
      sources_.emplace(source.key, source).first->second.never_started =
          rank.state < RankState::kStarted;
    }
  }
}

Status LogStream::CheckSelection(const Job& job) const {
  int64_t ranks = 0;
  for (const RoleSpec& role : job.spec.roles) {
    ranks += int64_t{role.count} * role.ranks_per_task;
  }
  for (const int32_t rank : request_.ranks()) {
    if (rank >= 0 && rank < ranks) continue;
    return InvalidArgument("ranks: job {} has ranks 0 to {}, not {}",
                           job.spec.name, ranks - 1, rank);
  }
  if (!request_.follow() && request_.attempt() > job.attempt) {
    return InvalidArgument("attempt: job {} has had {} so far, not {}",
                           job.spec.name, job.attempt, request_.attempt());
  }
  return OkStatus();
}

void LogStream::FindSources(const Job& job) {
  for (const Attempt& attempt : job.attempts) {
    AddSources(job, attempt.tasks, attempt.generation, attempt.ordinal);
  }
  AddSources(job, job.tasks, job.generation, job.attempt);
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
  std::string& partial = source->partial[name];
  partial += parsed.text;
  // A line without end is cut: it must fit a message.
  if (!parsed.full && partial.size() < kMaxMessageBytes / 2) return;
  const std::string text = std::exchange(partial, std::string());
  if (parsed.unix_nanos < Nanos(request_.since())) return;
  source->newest = std::max(source->newest, parsed.unix_nanos);
  Source::Line& entry = source->lines.emplace_back();
  entry.order = source->newest;
  entry.arrived = arrived;
  v1::LogLine& line = entry.line;
  *line.mutable_time() = ToProto(FromUnixNanos(parsed.unix_nanos));
  line.set_rank(source->key.rank);
  line.set_attempt(source->attempt);
  line.set_stream(name);
  line.set_text(text);
  line.set_task_type(ToProto(source->type));
  line.set_task_index(source->index);
}

StatusOr<bool> LogStream::ReadSource(Source* source) {
  if (source->done) return false;
  const bool ended = logs_->Ended(source->key);
  const size_t limit =
      std::clamp(kMaxBufferBytes / std::max<size_t>(1, sources_.size()),
                 kMinReadBytes, kMaxReadBytes);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string data,
                            logs_->Read(source->key, source->offset, limit));
  const MonoTime arrived = SystemClock().Now().mono;
  if (data.empty()) {
    if (ended) {
      source->done = true;
      if (!source->rest.empty()) {
        TakeLine(source, source->rest, arrived);
        source->rest.clear();
        return true;
      }
    }
    return false;
  }
  source->offset += data.size();
  source->rest += data;
  size_t begin = 0;
  for (size_t end; (end = source->rest.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    TakeLine(source, std::string_view(source->rest).substr(begin, end - begin),
             arrived);
  }
  source->rest.erase(0, begin);
  return true;
}

// Gathers lines into messages.
class LogStream::Sender {
 public:
  explicit Sender(
      const std::function<bool(const v1::StreamLogsResponse&)>& write)
      : write_(write) {}

  // The reader has left.
  bool gone() const { return gone_; }
  void Send(v1::LogLine line) {
    bytes_ += line.text().size() + 64;
    *response_.add_lines() = std::move(line);
    if (bytes_ > kMaxMessageBytes) Flush();
  }
  void Flush() {
    if (response_.lines_size() > 0) gone_ = gone_ || !write_(response_);
    response_.Clear();
    bytes_ = 0;
  }

 private:
  const std::function<bool(const v1::StreamLogsResponse&)>& write_;
  v1::StreamLogsResponse response_;
  size_t bytes_ = 0;
  bool gone_ = false;
};

Status LogStream::Fill(Source* source, Heads* heads) {
  while (source->lines.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool read, ReadSource(source));
    if (!read) return OkStatus();
  }
  heads->emplace(source->lines.front().order, source->key);
  return OkStatus();
}

Status LogStream::ReadTails(const std::function<bool()>& cancelled) {
  const auto most = static_cast<size_t>(request_.tail());
  std::map<int32_t, std::vector<Source*>> ranks;
  for (auto& [key, source] : sources_) {
    bool read = true;
    while (read && !cancelled()) {
      LOCKSTEP_ASSIGN_OR_RETURN(read, ReadSource(&source));
      while (source.lines.size() > most) source.lines.pop_front();
    }
    ranks[key.rank].push_back(&source);
  }
  // Of each rank over its attempts, which are in order: the newest stay.
  for (auto& [rank, attempts] : ranks) {
    size_t left = most;
    for (auto it = attempts.rbegin(); it != attempts.rend(); ++it) {
      while ((*it)->lines.size() > left) (*it)->lines.pop_front();
      left -= (*it)->lines.size();
    }
  }
  return OkStatus();
}

StatusOr<std::optional<MonoTime>> LogStream::SendMerged(
    bool more, const std::function<bool()>& cancelled, Sender* sender) {
  Heads heads;
  for (auto& [key, source] : sources_) {
    LOCKSTEP_RETURN_IF_ERROR(Fill(&source, &heads));
  }
  Time looked = SystemClock().Now();
  const auto quiet = [](const Source& source) {
    return source.lines.empty() && !source.done && !source.never_started;
  };
  auto quiet_count =
      std::count_if(sources_.begin(), sources_.end(),
                    [&](const auto& entry) { return quiet(entry.second); });
  while (!heads.empty() && !sender->gone()) {
    Source& source = sources_.at(heads.begin()->second);
    Source::Line& next = source.lines.front();
    if (more && quiet_count > 0 &&
        next.order > ToUnixNanos(looked.wall) - kOldNanos &&
        looked.mono < next.arrived + kHold) {
      return std::optional<MonoTime>(next.arrived + kHold);
    }
    sender->Send(std::move(next.line));
    heads.erase(heads.begin());
    source.lines.pop_front();
    const bool refill = source.lines.empty();
    LOCKSTEP_RETURN_IF_ERROR(Fill(&source, &heads));
    // What costs more than a line is asked once a read.
    if (!refill) continue;
    if (cancelled()) break;
    if (quiet(source)) ++quiet_count;
    const Time now = SystemClock().Now();
    if (now.mono - looked.mono < kLookAround) continue;
    looked = now;
    quiet_count = 0;
    for (auto& [key, other] : sources_) {
      if (other.lines.empty()) {
        LOCKSTEP_RETURN_IF_ERROR(Fill(&other, &heads));
      }
      quiet_count += quiet(other);
    }
  }
  return std::optional<MonoTime>();
}

Status LogStream::Run(
    const std::function<bool(const v1::StreamLogsResponse&)>& write,
    const std::function<bool()>& cancelled) {
  Sender sender(write);
  bool tailing = request_.tail() > 0;
  for (;;) {
    const uint64_t seen = logs_->change();
    LOCKSTEP_ASSIGN_OR_RETURN(const JobSnapshot snapshot,
                              coordinator_->GetJob(request_.name()));
    LOCKSTEP_RETURN_IF_ERROR(CheckSelection(*snapshot.job));
    FindSources(*snapshot.job);
    if (std::exchange(tailing, false)) {
      LOCKSTEP_RETURN_IF_ERROR(ReadTails(cancelled));
    }
    const bool final = IsFinal(snapshot.job->state);
    const auto merged =
        SendMerged(request_.follow() || final, cancelled, &sender);
    sender.Flush();
    if (sender.gone() || cancelled()) return OkStatus();
    // What was read before is the reader's all the same.
    if (!merged.ok()) {
      return Annotate(merged.status(), "job " + request_.name());
    }
    const std::optional<MonoTime>& held = *merged;
    const bool all_done =
        final &&
        std::all_of(sources_.begin(), sources_.end(), [](const auto& entry) {
          return entry.second.done || entry.second.never_started;
        });
    const MonoTime now = SystemClock().Now().mono;
    if (held) {
      logs_->WaitForChange(seen, std::min(*held, now + kPoll));
      continue;
    }
    if (all_done || (!request_.follow() && !final)) return OkStatus();
    // What a job wrote last is on its way when it ends. One that ended long
    // ago on a node that is gone has logs without end.
    if (final && snapshot.job->end_time &&
        snapshot.time - *snapshot.job->end_time >
            (request_.follow() ? kLastLines : kLastLinesUnasked)) {
      return OkStatus();
    }
    logs_->WaitForChange(seen, now + kPoll);
  }
}

}  // namespace lockstep
