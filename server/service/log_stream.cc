#include "server/service/log_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/log_line.h"
#include "common/wire/value_wire.h"

namespace lockstep {
namespace {

// Well below the 4 MiB that a gRPC message may have.
constexpr size_t kMaxMessageBytes = 1 << 20;
// Lines of a tail are kept in memory until the end of the log is reached: of
// all logs together, and at least of each.
constexpr size_t kMaxTailBytes = 64 << 20;
constexpr size_t kMinTailBytes = 64 << 10;
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

}  // namespace

LogStream::LogStream(Coordinator* coordinator, LogStore* logs,
                     v1::StreamLogsRequest request)
    : coordinator_(coordinator),
      logs_(logs),
      request_(std::move(request)),
      // REQUIRES says that it is OK.
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

Status LogStream::Fill(Source* source, const std::function<bool()>& cancelled,
                       Heads* heads) {
  // Where few lines are wanted, much is read before one is found.
  while (source->lines.empty()) {
    if (cancelled()) return OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(const bool read, ReadSource(source));
    if (!read) return OkStatus();
  }
  heads->emplace(source->lines.front().order, source->key);
  return OkStatus();
}

Status LogStream::ReadTails(const std::function<bool()>& cancelled) {
  const auto most = static_cast<size_t>(request_.tail());
  const size_t most_bytes = std::max(
      kMinTailBytes, kMaxTailBytes / std::max<size_t>(1, sources_.size()));
  std::map<int32_t, std::vector<Source*>> ranks;
  for (auto& [key, source] : sources_) {
    bool read = true;
    while (read && !cancelled()) {
      LOCKSTEP_ASSIGN_OR_RETURN(read, ReadSource(&source));
      while (source.lines.size() > most) {
        source.PopFront();
        source.cut_bytes = 0;
      }
      for (; source.bytes > most_bytes && source.lines.size() > 1;
           source.PopFront()) {
        source.cut_bytes += source.lines.front().line.text().size() + 1;
      }
    }
    ranks[key.rank].push_back(&source);
  }
  // Of each rank over its attempts, which are in order: the newest stay.
  for (auto& [rank, attempts] : ranks) {
    size_t left = most;
    for (auto it = attempts.rbegin(); it != attempts.rend(); ++it) {
      while ((*it)->lines.size() > left) (*it)->PopFront();
      left -= (*it)->lines.size();
      TellCut(*it);
    }
  }
  return OkStatus();
}

void LogStream::TellCut(Source* source) {
  if (source->cut_bytes == 0 || source->lines.empty()) return;
  const Source::Line& first = source->lines.front();
  Source::Line cut;
  cut.order = first.order;
  cut.arrived = first.arrived;
  cut.line = first.line;
  cut.line.set_severity(v1::SEVERITY_INFO);
  cut.line.set_text(
      fmt::format("[lockstep: {} bytes before this are left out: a tail may "
                  "have {} MiB of all ranks together; ask for fewer lines or "
                  "ranks]",
                  source->cut_bytes, kMaxTailBytes >> 20));
  source->PushFront(std::move(cut));
}

StatusOr<std::optional<MonoTime>> LogStream::SendMerged(
    bool more, const std::function<bool()>& cancelled, Sender* sender) {
  Heads heads;
  // Before the logs are read: what came since is looked for once more.
  Time looked = SystemClock().Now();
  for (auto& [key, source] : sources_) {
    LOCKSTEP_RETURN_IF_ERROR(Fill(&source, cancelled, &heads));
  }
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
    source.PopFront();
    const bool refill = source.lines.empty();
    LOCKSTEP_RETURN_IF_ERROR(Fill(&source, cancelled, &heads));
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
        LOCKSTEP_RETURN_IF_ERROR(Fill(&other, cancelled, &heads));
      }
      quiet_count += quiet(other);
    }
  }
  return std::optional<MonoTime>();
}

void LogStream::SendPartialLines(Sender* sender) {
  for (auto& [key, source] : sources_) {
    if (!source.lines.empty()) continue;
    for (auto& [stream, open] : source.open) {
      if (!std::exchange(open.changed, false)) continue;
      const std::string text(cri::ShownLine(open.text));
      // It is neither a bar nor a prompt, and would be sent again and again.
      if (text.size() > cri::kMaxLogText) continue;
      if (!filter_.WantsText(open.unix_nanos, text)) continue;
      // The line may go on and be worse: the reader's own state stays.
      SeverityReader reader = source.severity[stream];
      const Severity severity = reader.Next(text);
      if (!filter_.WantsSeverity(severity)) continue;
      v1::LogLine line = LineOf(source, stream, open.unix_nanos);
      line.set_text(text);
      line.set_severity(static_cast<v1::Severity>(severity));
      line.set_partial(true);
      sender->Send(std::move(line));
    }
  }
}

Status LogStream::Run(
    const std::function<bool(const v1::StreamLogsResponse&)>& write,
    const std::function<bool()>& cancelled) {
  const std::function<bool(const v1::StreamLogsResponse&)> counting =
      [&](const v1::StreamLogsResponse& lines) {
        int64_t read = 0;
        for (const auto& [key, source] : sources_) {
          read += static_cast<int64_t>(source.lines.size());
        }
        lines_waiting_ = read + lines.lines_size();
        const bool sent = write(lines);
        lines_waiting_ = read;
        return sent;
      };
  Sender sender(counting);
  bool tailing = request_.tail() > 0;
  for (;;) {
    const uint64_t seen = logs_->change();
    LOCKSTEP_ASSIGN_OR_RETURN(const JobSnapshot snapshot,
                              coordinator_->GetJob(request_.name()));
    LOCKSTEP_RETURN_IF_ERROR(CheckLogSelection(request_, *snapshot.job));
    FindSources(*snapshot.job);
    if (std::exchange(tailing, false)) {
      LOCKSTEP_RETURN_IF_ERROR(ReadTails(cancelled));
    }
    const bool final = IsFinal(snapshot.job->state);
    const bool follow =
        request_.follow() && !IsPast(request_, SystemClock().Now().wall);
    const auto merged = SendMerged(follow || final, cancelled, &sender);
    if (follow && request_.partial_lines()) SendPartialLines(&sender);
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
    if (all_done || (!follow && !final)) return OkStatus();
    // What a job wrote last is on its way when it ends. One that ended long
    // ago on a node that is gone has logs without end.
    if (final && snapshot.job->end_time &&
        snapshot.time - *snapshot.job->end_time >
            (follow ? kLastLines : kLastLinesUnasked)) {
      return OkStatus();
    }
    logs_->WaitForChange(seen, now + kPoll);
  }
}

}  // namespace lockstep
