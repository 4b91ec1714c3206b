// One rank's log for one reader: converts bytes to lines, which wait until they
// are sent. Not thread-safe.
#ifndef LOCKSTEP_SERVER_LOG_STREAM_RANK_LOG_H_
#define LOCKSTEP_SERVER_LOG_STREAM_RANK_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "lockstep/v1/job.pb.h"
#include "server/core/job.h"
#include "server/logs/log_filter.h"
#include "server/logs/log_store.h"
#include "server/logs/severity.h"

namespace lockstep::server {

// Memory limit of a tail's lines over all logs. They are kept until the end of
// the log is read.
inline constexpr size_t kMaxTailBytes = 64 << 20;

class RankLog {
 public:
  struct Origin {
    LogKey key;
    int32_t attempt = 0;
    TaskType type = TaskType::kChief;
    int32_t index = 0;
    // "worker-replica-1".
    std::string task;
  };
  struct Line {
    // The line's time, but never before that of the previous line: a host's
    // clock may step back, and a rank's lines keep their order.
    int64_t order = 0;
    MonoTime arrived;
    // Approximate memory. Push sets it.
    size_t bytes = 0;
    v1::LogLine line;
  };

  explicit RankLog(Origin origin) : origin_(std::move(origin)) {}
  // Makes a log without a rank. Its lines come by Push.
  static RankLog OfEvents(LogKey key);

  // Updates from the job's record of the rank. `may_restart`: the rank may
  // restart alone.
  void Update(const RankStatus& rank, bool may_restart);
  // Reads at most `limit` bytes and takes the complete lines that `filter`
  // selects. Returns false if there is nothing new.
  StatusOr<bool> Read(LogStore* logs, const LogFilter& filter, size_t limit);
  void Push(Line line);

  // No line is read and waiting.
  bool empty() const { return lines_.empty(); }
  size_t size() const { return lines_.size(); }
  Line& front() { return lines_.front(); }
  void PopFront();
  // Removes the oldest lines until at most `most` of at most `most_bytes`
  // remain. The last line always stays.
  void KeepLast(size_t most, size_t most_bytes);
  // Inserts a first line that gives the number of bytes removed from the tail,
  // if any.
  void AddCutNote();
  // Returns an unfinished line that changed since the last call, without
  // removing it. Nullopt if there is none.
  std::optional<v1::LogLine> NextPartialLine(const LogFilter& filter);

  const LogKey& key() const { return origin_.key; }
  // True if no more lines will come.
  bool is_over() const { return done_ || never_started_; }
  size_t KeptBytes() const;

 private:
  // An unfinished line.
  struct Open {
    std::string text;
    // Time of its last part.
    int64_t unix_nanos = 0;
    // The reader has not received this state.
    bool changed = false;
  };
  // A rank's streams progress independently.
  struct Stream {
    Open open;
    SeverityReader severity;
  };

  void TakeLine(std::string_view bytes, const LogFilter& filter,
                MonoTime arrived);
  // Returns a line without text and severity.
  v1::LogLine LineOf(const std::string& stream, int64_t unix_nanos) const;

  const Origin origin_;
  uint64_t offset_ = 0;
  // Bytes of an incomplete line.
  std::string rest_;
  // By name: "stdout", "stderr".
  std::map<std::string, Stream> streams_;
  // Its process never started, so no log will come after the job's end.
  bool never_started_ = false;
  // The rank's number of lone restarts. An end with a smaller number is
  // ignored.
  int32_t life_ = 0;
  // More may follow its end, because a rank that restarts alone continues its
  // log.
  bool may_go_on_ = false;
  bool done_ = false;
  int64_t newest_ = INT64_MIN;
  std::deque<Line> lines_;
  // The bytes of all lines.
  size_t bytes_ = 0;
  // Bytes removed from the tail.
  uint64_t cut_bytes_ = 0;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_LOG_STREAM_RANK_LOG_H_
