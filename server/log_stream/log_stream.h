// One reader of a job's logs: follows the files of all its ranks. It holds no
// thread while nothing is written: the log store and the watch hub wake it.
#ifndef LOCKSTEP_SERVER_LOG_STREAM_LOG_STREAM_H_
#define LOCKSTEP_SERVER_LOG_STREAM_LOG_STREAM_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "lockstep/v1/job.pb.h"
#include "server/coordinator/cluster_queries.h"
#include "server/coordinator/watch_hub.h"
#include "server/log_stream/log_request.h"
#include "server/logs/log_filter.h"
#include "server/logs/log_store.h"
#include "server/logs/severity.h"
#include "server/metrics/stream_metrics.h"
#include "server/query/visibility.h"
#include "server/stream/stream_reactor.h"

namespace lockstep {

class LogStream final : public StreamSource<v1::StreamLogsResponse> {
 public:
  // All outlive it; `streams` may be null. REQUIRES: CheckLogRequest is OK.
  LogStream(const ClusterQueries* queries, WatchHub* hub, LogStore* logs,
            StreamMetrics* streams, JobReader reader,
            v1::StreamLogsRequest request, StreamPeer* peer);

  // Sends what is there, merged by time over all ranks, each rank's lines in
  // their own order; and with `follow` what comes, until the job has ended and
  // every log with it. While more may come, a line of the last seconds is held
  // back until every rank has a later one or has ended, at most for 0.3 s.
  // What is in memory at a time is bounded, whatever the logs' size.
  // Of a job that has just ended it waits for what is on its way: without
  // `follow` until 5 s after its end.
  // Events of the job come between the lines as those of a task "service".
  // With `follow` and `partial_lines` the state of a line that has no end yet
  // comes as soon as the node has sent it, but of lines above 16 KiB.
  // NotFound: what was being read has been deleted; the lines before it were
  // sent. PermissionDenied: the job that has the name by now is not `reader`'s
  // to see.
  StreamStep Next(v1::StreamLogsResponse* message) override;
  int64_t KeptBytes() const override;

 private:
  struct Source {
    LogKey key;
    int32_t attempt = 0;
    TaskType type = TaskType::kChief;
    int32_t index = 0;
    // "worker-replica-1".
    std::string task;
    uint64_t offset = 0;
    // Bytes of a line that is not complete yet.
    std::string rest;
    // What there is of a line that has no end yet.
    struct Open {
      std::string text;
      // Of its last part.
      int64_t unix_nanos = 0;
      // The reader has not seen it so.
      bool changed = false;
    };
    // By stream: the rank's two streams are not in step.
    std::map<std::string, Open> open;
    // By stream, as well.
    std::map<std::string, SeverityReader> severity;
    // Its process never was: there is no log to wait for once the job is over.
    bool never_started = false;
    // How often it was started again alone: an end of a start before that is
    // none.
    int32_t life = 0;
    // Its end may not be the last one: a rank that is started again alone goes
    // on with its log.
    bool may_go_on = false;
    bool done = false;
    struct Line {
      // Its time, but never before the one ahead of it: a host's clock may
      // step back, a rank's lines do not change places.
      int64_t order = 0;
      MonoTime arrived;
      // What it takes in memory, about.
      size_t bytes = 0;
      v1::LogLine line;
    };
    // Read and not sent yet.
    std::deque<Line> lines;
    // Of all of them.
    size_t bytes = 0;
    // Of lines that a tail had no room for.
    uint64_t cut_bytes = 0;

    void Push(Line line);
    void PushFront(Line line);
    void PopFront();
    int64_t newest = INT64_MIN;
  };
  // Those whose first line is known, the oldest first.
  using Heads = std::set<std::pair<int64_t, LogKey>>;
  class Sender;

  // What came of sending.
  struct Merged {
    // There is more to read and send at once: the message is full, or others
    // are to have their turn.
    bool unfinished = false;
    // When to try again where lines are held back.
    std::optional<MonoTime> held;
  };

  static constexpr int32_t kServiceRank = -1;

  // Looks at the job, and sends what may be sent.
  StatusOr<StreamStep> Pass(Sender* sender);
  // Before the job is read: what happens to it from now on wakes this.
  void ListenToJob();
  // And before its logs are.
  void ListenToLogs(const std::string& job_uid);
  // What to do once nothing more is to be sent now.
  StreamStep AfterAll(const JobSnapshot& snapshot, bool follow,
                      const Merged& merged) const;
  // It has had the thread for long enough, or nobody waits for it.
  bool IsTurnOver() const;
  int64_t LinesRead() const;

  void FindSources(const Job& job);
  // Those that are new since the last call.
  void TakeEvents(const Job& job);
  void AddSources(const Job& job, const std::vector<TaskStatus>& tasks,
                  Generation generation, int32_t attempt);
  // Takes complete lines of `source`; false: nothing new.
  StatusOr<bool> ReadSource(Source* source);
  void TakeLine(Source* source, std::string_view bytes, MonoTime arrived) const;
  // Reads until it has a line or there is nothing more, and enters it into
  // `heads`. False: the turn is over before that.
  StatusOr<bool> Fill(Source* source, Heads* heads);
  // Of each of them that has no line.
  StatusOr<bool> FillAll(Heads* heads);
  // Reads all there is, and keeps the last lines of each rank; fewer where they
  // take too much memory, which a line in their place says. False: the turn is
  // over before the end.
  StatusOr<bool> ReadTails();
  static void TellCut(Source* source);
  // Without text and severity.
  static v1::LogLine LineOf(const Source& source, const std::string& stream,
                            int64_t unix_nanos);
  // Sends lines that have no end yet, where they changed since the last call
  // and no line of their rank waits.
  void SendPartialLines(Sender* sender);
  // Sends what may be sent. `more`: lines may still come.
  StatusOr<Merged> SendMerged(bool more, Sender* sender);

  const ClusterQueries* const queries_;
  WatchHub* const hub_;
  LogStore* const logs_;
  StreamPeer* const peer_;
  const JobReader reader_;
  const v1::StreamLogsRequest request_;
  const LogFilter filter_;
  // Whose lines are wanted; empty: of all. Without "service".
  std::set<std::string> tasks_;
  bool events_ = false;
  // What was taken of the events: the time of the last, and which had it.
  int64_t newest_event_ = INT64_MIN;
  std::set<std::string> events_of_moment_;
  std::map<LogKey, Source> sources_;
  // The last lines are still to be found.
  bool tailing_;
  MonoTime turn_end_{};
  // How it ends once the last message is sent.
  std::optional<Status> end_;
  // Lines that were read and that the reader has not taken.
  std::atomic<int64_t> lines_waiting_ = 0;
  std::optional<WatchHub::Watch> job_news_;
  std::string listened_uid_;
  std::optional<LogStore::Listener> log_news_;
  const StreamMetrics::Open open_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_LOG_STREAM_LOG_STREAM_H_
