// One rank's log as one reader takes it: its bytes become lines, and the lines
// wait until they are sent. Not safe from several threads.
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

namespace lockstep {

// The most bytes that the lines of a tail take in memory, of all logs together:
// they are kept until the end of the log is reached.
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
    // The line's time, but never before that of the line ahead of it: a host's
    // clock may step back, and the lines of a rank keep their order.
    int64_t order = 0;
    MonoTime arrived;
    // About what it takes in memory. Push sets it.
    size_t bytes = 0;
    v1::LogLine line;
  };

  explicit RankLog(Origin origin) : origin_(std::move(origin)) {}
  // A log without a rank: its lines come by Push, and no reader waits for more.
  static RankLog OfEvents(LogKey key);

  // Takes what the job knows of the rank. `may_restart`: the rank may be
  // started again alone.
  void Update(const RankStatus& rank, bool may_restart);
  // Reads at most `limit` bytes and takes the complete lines that `filter`
  // wants. Returns false if there is nothing new.
  StatusOr<bool> Read(LogStore* logs, const LogFilter& filter, size_t limit);
  void Push(Line line);

  // Lines that were read and not sent yet.
  bool empty() const { return lines_.empty(); }
  size_t size() const { return lines_.size(); }
  Line& front() { return lines_.front(); }
  void PopFront();
  // Removes the oldest lines until at most `most` of at most `most_bytes` are
  // left; the last line always stays.
  void KeepLast(size_t most, size_t most_bytes);
  // Puts a line in front that tells of the bytes for which the tail had no
  // room, if there are any.
  void TellCut();
  // Returns a line that has no end yet and changed since the last call, without
  // taking it out. nullopt if there is none.
  std::optional<v1::LogLine> NextPartialLine(const LogFilter& filter);

  const LogKey& key() const { return origin_.key; }
  // No line comes any more.
  bool is_over() const { return done_ || never_started_; }
  size_t KeptBytes() const;

 private:
  // A line that has no end yet.
  struct Open {
    std::string text;
    // Of its last part.
    int64_t unix_nanos = 0;
    // The reader has not seen it so.
    bool changed = false;
  };
  // The rank's two streams are not in step.
  struct Stream {
    Open open;
    SeverityReader severity;
  };

  void TakeLine(std::string_view bytes, const LogFilter& filter,
                MonoTime arrived);
  // Without text and severity.
  v1::LogLine LineOf(const std::string& stream, int64_t unix_nanos) const;

  const Origin origin_;
  uint64_t offset_ = 0;
  // Bytes of a line that is not complete yet.
  std::string rest_;
  // By name: "stdout", "stderr".
  std::map<std::string, Stream> streams_;
  // Its process never was: there is no log to wait for once the job is over.
  bool never_started_ = false;
  // How often it was started again alone: an end of a start before that is
  // none.
  int32_t life_ = 0;
  // Its end may not be the last one: a rank that is started again alone goes
  // on with its log.
  bool may_go_on_ = false;
  bool done_ = false;
  int64_t newest_ = INT64_MIN;
  std::deque<Line> lines_;
  // Of all of them.
  size_t bytes_ = 0;
  // Of lines that a tail had no room for.
  uint64_t cut_bytes_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_LOG_STREAM_RANK_LOG_H_
