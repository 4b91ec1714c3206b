#include "server/log_stream/rank_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/log_line.h"
#include "common/wire/value_wire.h"

namespace lockstep::server {
namespace {

// A longer unfinished line is cut, because it must fit a message.
constexpr size_t kMaxOpenText = 512 << 10;
// Stored lines are never longer. Others are foreign.
constexpr size_t kMaxRawLine = 4 * cri::kMaxLogLine;
// The size of a message without its text.
constexpr size_t kLineBytes = sizeof(v1::LogLine) + 64;

size_t BytesOf(const v1::LogLine& line) {
  return line.text().size() + kLineBytes;
}

}  // namespace

RankLog RankLog::OfEvents(LogKey key) {
  RankLog log(Origin{.key = std::move(key), .task = ""});
  log.never_started_ = true;
  log.done_ = true;
  return log;
}

void RankLog::Update(const RankStatus& rank, bool may_restart) {
  const bool started = rank.state >= RankState::kStarted;
  never_started_ = !started && rank.restarts == 0;
  // The last restart may not have started a process.
  life_ = !started && rank.restarts > 0 ? rank.restarts - 1 : rank.restarts;
  may_go_on_ = rank.restarts > 0 || may_restart;
}

StatusOr<bool> RankLog::Read(LogStore* logs, const LogFilter& filter,
                             size_t limit) {
  if (done_ && !may_go_on_) return false;
  const auto ended_life = logs->EndedLife(key());
  const bool ended = ended_life && *ended_life >= life_;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string data,
                            logs->Read(key(), offset_, limit));
  const MonoTime arrived = MonotonicNow();
  if (data.empty()) {
    done_ = ended;
    if (!ended || rest_.empty()) return false;
    TakeLine(rest_, filter, arrived);
    rest_.clear();
    return true;
  }
  done_ = false;
  offset_ += data.size();
  rest_ += data;
  size_t begin = 0;
  for (size_t end; (end = rest_.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    TakeLine(std::string_view(rest_).substr(begin, end - begin), filter,
             arrived);
  }
  rest_.erase(0, begin);
  if (rest_.size() > kMaxRawLine) {
    TakeLine(rest_, filter, arrived);
    rest_.clear();
  }
  return true;
}

void RankLog::TakeLine(std::string_view bytes, const LogFilter& filter,
                       MonoTime arrived) {
  cri::LogLine parsed;
  std::string error;
  if (!cri::ParseLogLine(bytes, &parsed, &error)) {
    // A malformed line is shown unchanged.
    parsed = {};
    parsed.text = bytes;
  }
  const std::string name =
      parsed.stream == cri::LogStream::kStderr ? "stderr" : "stdout";
  Stream& stream = streams_[name];
  Open& open = stream.open;
  cri::AppendToLine(parsed.text, &open.text);
  open.unix_nanos = parsed.unix_nanos;
  open.changed = true;
  if (!parsed.full && open.text.size() < kMaxOpenText) return;
  const std::string text(cri::ShownLine(open.text));
  open = {};
  // Severity needs every line, because tracebacks span several.
  if (!filter.WantsText(parsed.unix_nanos, text)) {
    return stream.severity.Skip(text);
  }
  const Severity severity = stream.severity.Next(text);
  if (!filter.WantsSeverity(severity)) return;
  newest_ = std::max(newest_, parsed.unix_nanos);
  Line entry;
  entry.order = newest_;
  entry.arrived = arrived;
  entry.line = LineOf(name, parsed.unix_nanos);
  entry.line.set_text(text);
  entry.line.set_severity(static_cast<v1::Severity>(severity));
  Push(std::move(entry));
}

v1::LogLine RankLog::LineOf(const std::string& stream,
                            int64_t unix_nanos) const {
  v1::LogLine line;
  *line.mutable_time() = ToProto(FromUnixNanos(unix_nanos));
  line.set_rank(origin_.key.rank);
  line.set_attempt(origin_.attempt);
  line.set_stream(stream);
  line.set_task_type(ToProto(origin_.type));
  line.set_task_index(origin_.index);
  line.set_task(origin_.task);
  return line;
}

void RankLog::Push(Line line) {
  line.bytes = BytesOf(line.line);
  bytes_ += line.bytes;
  lines_.push_back(std::move(line));
}

void RankLog::PopFront() {
  bytes_ -= lines_.front().bytes;
  lines_.pop_front();
}

void RankLog::KeepLast(size_t most, size_t most_bytes) {
  while (lines_.size() > most) {
    PopFront();
    cut_bytes_ = 0;
  }
  for (; bytes_ > most_bytes && lines_.size() > 1; PopFront()) {
    cut_bytes_ += lines_.front().line.text().size() + 1;
  }
}

void RankLog::AddCutNote() {
  if (cut_bytes_ == 0 || lines_.empty()) return;
  Line cut = lines_.front();
  cut.line.set_severity(v1::SEVERITY_INFO);
  cut.line.set_text(
      fmt::format("[lockstep: {} bytes before this are left out: a tail may "
                  "have {} MiB of all ranks together; ask for fewer lines or "
                  "ranks]",
                  cut_bytes_, kMaxTailBytes >> 20));
  cut.bytes = BytesOf(cut.line);
  bytes_ += cut.bytes;
  lines_.push_front(std::move(cut));
}

std::optional<v1::LogLine> RankLog::NextPartialLine(const LogFilter& filter) {
  if (!lines_.empty()) return std::nullopt;
  for (auto& [name, stream] : streams_) {
    Open& open = stream.open;
    if (!std::exchange(open.changed, false)) continue;
    const std::string text(cri::ShownLine(open.text));
    // Too long for a progress bar or prompt, and costly to resend.
    if (text.size() > cri::kMaxLogText) continue;
    if (!filter.WantsText(open.unix_nanos, text)) continue;
    // A copy, because the line may continue and become worse.
    SeverityReader reader = stream.severity;
    const Severity severity = reader.Next(text);
    if (!filter.WantsSeverity(severity)) continue;
    v1::LogLine line = LineOf(name, open.unix_nanos);
    line.set_text(text);
    line.set_severity(static_cast<v1::Severity>(severity));
    line.set_partial(true);
    return line;
  }
  return std::nullopt;
}

size_t RankLog::KeptBytes() const {
  size_t kept = bytes_ + rest_.capacity();
  for (const auto& [name, stream] : streams_) {
    kept += stream.open.text.capacity();
  }
  return kept;
}

}  // namespace lockstep::server
