#include "server/logs/log_tail.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "common/base/log_line.h"
#include "server/core/job.h"

namespace lockstep::server {
namespace {

// Enough for a traceback, however many ranks there are.
constexpr size_t kLeastBytes = 16 << 10;

// Makes lines of the bytes of one log.
class TailReader {
 public:
  TailReader(int32_t rank, const std::function<bool(const TailLine&)>& wants,
             const TailLimits& limits, std::vector<TailLine>* lines)
      : rank_(rank), wants_(wants), limits_(limits), lines_(*lines) {}

  void Take(std::string_view bytes) {
    cri::LogLine parsed;
    std::string error;
    if (!cri::ParseLogLine(bytes, &parsed, &error)) {
      parsed = {};
      parsed.text = bytes;
    }
    Open& open = streams_[parsed.stream == cri::LogStream::kStderr ? 1 : 0];
    cri::AppendToLine(parsed.text, &open.text);
    open.unix_nanos = parsed.unix_nanos;
    open.any = true;
    if (parsed.full || open.text.size() > cri::kMaxLogText) Finish(&open);
  }
  void Finish() {
    for (Open& open : streams_) {
      if (open.any) Finish(&open);
    }
  }

 private:
  struct Open {
    std::string text;
    int64_t unix_nanos = 0;
    bool any = false;
    SeverityReader severity;
  };

  void Finish(Open* open) {
    TailLine line;
    // A host's clock may step back; the lines keep their order.
    newest_ = std::max(newest_, open->unix_nanos);
    line.unix_nanos = newest_;
    line.rank = rank_;
    line.is_stderr = open == &streams_[1];
    line.text = cri::ShownLine(open->text);
    line.severity = open->severity.Next(line.text);
    open->text.clear();
    open->any = false;
    if (!wants_(line)) return;
    if (line.text.size() > limits_.line_bytes) {
      line.text = Shorten(std::move(line.text), limits_.line_bytes);
    }
    lines_.push_back(std::move(line));
  }

  const int32_t rank_;
  const std::function<bool(const TailLine&)>& wants_;
  const TailLimits& limits_;
  std::vector<TailLine>& lines_;
  std::array<Open, 2> streams_;
  int64_t newest_ = INT64_MIN;
};

}  // namespace

StatusOr<LogTail> ReadTail(LogStore* logs, const std::vector<LogKey>& keys,
                           const std::function<bool(const TailLine&)>& wants,
                           const TailLimits& limits) {
  LogTail tail;
  const size_t share =
      std::max(kLeastBytes, limits.bytes / std::max<size_t>(1, keys.size()));
  size_t read = 0;
  for (const LogKey& key : keys) {
    if (read >= limits.bytes) {
      tail.cut = true;
      break;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t size, logs->SizeOf(key));
    const uint64_t from = size > share ? size - share : 0;
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string data,
                              logs->Read(key, from, share));
    read += data.size();
    std::string_view rest = data;
    if (from > 0) {
      tail.cut = true;
      // The first line is not whole.
      rest.remove_prefix(std::min(rest.size(), rest.find('\n')));
      if (!rest.empty()) rest.remove_prefix(1);
    }
    TailReader reader(key.rank, wants, limits, &tail.lines);
    while (!rest.empty()) {
      const size_t end = std::min(rest.size(), rest.find('\n'));
      reader.Take(rest.substr(0, end));
      rest.remove_prefix(std::min(rest.size(), end + 1));
    }
    reader.Finish();
  }
  std::stable_sort(tail.lines.begin(), tail.lines.end(),
                   [](const TailLine& a, const TailLine& b) {
                     return a.unix_nanos < b.unix_nanos;
                   });
  if (tail.lines.size() > limits.lines) {
    tail.cut = true;
    tail.lines.erase(
        tail.lines.begin(),
        tail.lines.end() - static_cast<std::ptrdiff_t>(limits.lines));
  }
  return tail;
}

}  // namespace lockstep::server
