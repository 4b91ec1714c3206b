#include "worker/agent/stream/log_shipper.h"

#include <algorithm>
#include <utility>

#include "common/base/log_line.h"
#include "common/base/logging.h"
#include "worker/shim/log_reader.h"
#include "worker/task/bytes.h"

namespace lockstep::worker::agent {
namespace {

constexpr std::string_view kMarksMagic = "LSMARKS1";

std::string MarksPath(const std::string& log_path) {
  return log_path + "-marks";
}

// The line that stands for `gap` bytes before `bytes`, at their time.
std::string GapLine(std::string_view bytes, uint64_t gap) {
  cri::LogLine line;
  std::string error;
  if (!cri::ParseLogLine(bytes.substr(0, bytes.find('\n')), &line, &error)) {
    line = cri::LogLine();
  }
  const std::string text = cri::LogGapText(gap);
  line.full = true;
  line.text = text;
  std::string out;
  cri::AppendLogLine(line, &out);
  return out;
}

}  // namespace

void LogShipper::Add(const RankRef& ref, const std::string& job_uid,
                     const std::string& log_path) {
  if (logs_.contains(ref)) return SetGoesOn(ref);
  Log& log = logs_[ref];
  log.job_uid = job_uid;
  log.path = log_path;
  LoadMarks(&log);
}

void LogShipper::SetEnded(const RankRef& ref) {
  if (const auto it = logs_.find(ref); it != logs_.end()) {
    it->second.ended = true;
  }
}

void LogShipper::SetGoesOn(const RankRef& ref) {
  const auto it = logs_.find(ref);
  if (it == logs_.end()) return;
  it->second.ended = false;
  it->second.end_sent = false;
  it->second.end_acked = false;
}

void LogShipper::Remove(const RankRef& ref) { logs_.erase(ref); }

bool LogShipper::Done(const RankRef& ref) const {
  const auto it = logs_.find(ref);
  return it == logs_.end() || it->second.end_acked;
}

uint64_t LogShipper::BytesSent(const RankRef& ref) const {
  const auto it = logs_.find(ref);
  return it == logs_.end() ? 0 : it->second.total_sent;
}

uint64_t LogShipper::BytesDropped(const RankRef& ref) const {
  const auto it = logs_.find(ref);
  uint64_t dropped = 0;
  for (size_t i = 1; it != logs_.end() && i < it->second.marks.size(); ++i) {
    const Mark& last = it->second.marks[i - 1];
    const Mark& mark = it->second.marks[i];
    const uint64_t sent = mark.sent - mark.gap_text.size() - last.sent;
    if (mark.file > last.file + sent) dropped += mark.file - last.file - sent;
  }
  return dropped;
}

uint64_t LogShipper::Gaps(const RankRef& ref) const {
  const auto it = logs_.find(ref);
  // The first mark is the beginning.
  if (it == logs_.end() || it->second.marks.empty()) return 0;
  return it->second.marks.size() - 1;
}

void LogShipper::OnReconnect() {
  for (const auto& [ref, log] : logs_) SendAgain(ref);
}

void LogShipper::SendAgain(const RankRef& ref) {
  const auto it = logs_.find(ref);
  if (it == logs_.end()) return;
  it->second.sent = it->second.acked;
  it->second.end_sent = it->second.end_acked;
}

void LogShipper::OnAck(const LogAckInfo& ack, MonoTime now) {
  const auto it = logs_.find({{ack.job, ack.generation}, ack.rank});
  if (it == logs_.end()) return;
  Log& log = it->second;
  log.progress = now;
  if (ack.offset < log.acked || ack.offset > log.sent) {
    // It has lost bytes, or has more than this daemon sent.
    log.sent = ack.offset;
    log.end_sent = false;
  }
  log.acked = ack.offset;
  // An end that was stored before the log went on is none.
  log.end_acked = ack.end && log.end_sent && ack.offset == log.sent;
}

std::vector<LogPiece> LogShipper::Take(MonoTime now) {
  std::vector<LogPiece> pieces;
  size_t in_flight = 0;
  for (auto& [ref, log] : logs_) {
    if (log.Waits() && now - log.progress > options_.ack_timeout) {
      log.sent = log.acked;
      log.end_sent = log.end_acked;
    }
    in_flight += log.sent - log.acked;
  }
  // One chunk of each in turn, from where the last turn ended, so that a loud
  // log does not starve the others.
  for (size_t idle = 0;
       idle < logs_.size() && in_flight < options_.max_in_flight;) {
    auto it = logs_.upper_bound(next_);
    if (it == logs_.end()) it = logs_.begin();
    auto& [ref, log] = *it;
    next_ = ref;
    if (!log.Waits()) log.progress = now;
    auto piece =
        TakePiece(ref, &log,
                  std::min(options_.chunk, options_.max_in_flight - in_flight));
    if (!piece) {
      ++idle;
      continue;
    }
    idle = 0;
    in_flight += piece->data.size();
    pieces.push_back(*std::move(piece));
  }
  return pieces;
}

void LogShipper::LoadMarks(Log* log) {
  log->marks = {Mark{}};
  const auto bytes = files_->Read(MarksPath(log->path), 1 << 20);
  if (!bytes.ok()) return;  // As nearly always: no gap.
  std::string_view payload;
  std::string error;
  if (!task::Unseal("marks", kMarksMagic, 1, *bytes, &payload, &error)) {
    LOG_WARN("{}: {}", MarksPath(log->path), error);
    return;
  }
  task::ByteReader reader(payload);
  const uint32_t count = reader.U32();
  for (uint32_t i = 0; reader.ok() && i < count; ++i) {
    Mark mark;
    mark.sent = reader.U64();
    mark.file = reader.U64();
    mark.gap_text = reader.Str(1024);
    if (reader.ok()) log->marks.push_back(std::move(mark));
  }
}

void LogShipper::AddMark(Log* log, uint64_t file, std::string gap_text) {
  log->marks.push_back({log->sent + gap_text.size(), file, gap_text});
  task::ByteWriter writer;
  writer.U32(static_cast<uint32_t>(log->marks.size() - 1));
  for (size_t i = 1; i < log->marks.size(); ++i) {
    writer.U64(log->marks[i].sent);
    writer.U64(log->marks[i].file);
    writer.Str(log->marks[i].gap_text);
  }
  const Status saved = files_->WriteAtomic(
      MarksPath(log->path), task::Seal(kMarksMagic, 1, writer.Take()), 0640);
  if (!saved.ok()) LOG_WARN("{}", Message(saved));
}

std::optional<LogPiece> LogShipper::TakePiece(const RankRef& ref, Log* log,
                                              size_t most) {
  if (log->end_sent) return std::nullopt;
  LogPiece piece;
  piece.job = ref.gang.job;
  piece.job_uid = log->job_uid;
  piece.generation = ref.gang.generation;
  piece.rank = ref.rank;
  piece.offset = log->sent;

  // The newest mark at or before `sent`; marks[0] is the beginning.
  size_t at = log->marks.size() - 1;
  while (log->marks[at].sent > log->sent) --at;
  const Mark& mark = log->marks[at];
  const bool last = at + 1 == log->marks.size();
  const uint64_t until =
      last ? UINT64_MAX
           : log->marks[at + 1].sent - log->marks[at + 1].gap_text.size();
  if (log->sent >= until) {  // Within the line that stands for a gap.
    const Mark& next = log->marks[at + 1];
    piece.data = next.gap_text.substr(log->sent - until);
  } else {
    const uint64_t file = mark.file + (log->sent - mark.sent);
    const auto chunk = shim::ReadLog(
        log->path, file, std::min<uint64_t>(most, until - log->sent));
    if (!chunk.ok()) {
      // The program did not start, so there is no log.
      if (!log->ended) return std::nullopt;
    } else if (chunk->gap > 0 && last) {
      AddMark(log, chunk->offset, GapLine(chunk->bytes, chunk->gap));
      return TakePiece(ref, log, most);
    } else {
      // Whole lines, so perhaps a little more than was asked for.
      piece.data = chunk->bytes.substr(
          0, std::min<uint64_t>(kMaxLogChunk, until - log->sent));
    }
    piece.end = last && log->ended && piece.data.empty();
  }
  if (piece.data.empty() && !piece.end) return std::nullopt;
  log->sent += piece.data.size();
  log->total_sent += piece.data.size();
  log->end_sent = piece.end;
  return piece;
}

}  // namespace lockstep::worker::agent
