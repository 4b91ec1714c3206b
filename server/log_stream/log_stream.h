// Streams a job's logs to one reader: follows the files of all its ranks. It
// holds no thread while idle: the log store and the watch hub wake it.
#ifndef LOCKSTEP_SERVER_LOG_STREAM_LOG_STREAM_H_
#define LOCKSTEP_SERVER_LOG_STREAM_LOG_STREAM_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "lockstep/v1/job.pb.h"
#include "server/coordinator/cluster_queries.h"
#include "server/coordinator/watch_hub.h"
#include "server/log_stream/job_logs.h"
#include "server/logs/log_store.h"
#include "server/metrics/stream_metrics.h"
#include "server/query/visibility.h"
#include "server/stream/stream_reactor.h"

namespace lockstep::server {

class LogStream final : public StreamSource<v1::StreamLogsResponse> {
 public:
  // All outlive this object; `streams` may be null. REQUIRES: CheckLogRequest
  // is OK.
  LogStream(const ClusterQueries* queries, WatchHub* hub, LogStore* logs,
            StreamMetrics* streams, JobReader reader,
            v1::StreamLogsRequest request, StreamPeer* peer);

  // Sends existing lines, merged by time over all ranks, with each rank's lines
  // in order. With `follow` it continues until the job and all its logs have
  // ended. While more lines may come, a recent line is held back until every
  // rank has a later one or has ended, for at most 0.3 s. Memory is bounded,
  // whatever the logs' size. For a job that has just ended it waits for late
  // lines: without `follow` until 5 s after its end. Events of the job are
  // lines of a task "service". With `follow` and `partial_lines` an unfinished
  // line of at most 16 KiB is sent as soon as the node sends it. NotFound: a
  // log was deleted while it was read; earlier lines were sent.
  // PermissionDenied: `reader` may not see the job that has the name now.
  StreamStep Next(v1::StreamLogsResponse* message) override;
  int64_t KeptBytes() const override { return logs_.KeptBytes(); }

 private:
  // Logs with a known first line, ordered by its time.
  using Heads = std::set<std::pair<int64_t, LogKey>>;
  class Sender;

  // The result of sending.
  struct Merged {
    // There is more to read and send now: the message is full, or other calls
    // get a turn.
    bool unfinished = false;
    // The time of the next attempt if lines are held back.
    std::optional<MonoTime> held;
  };

  // Looks up the job and sends what is possible.
  StatusOr<StreamStep> Pass(Sender* sender);
  // Wakes this on changes of the job. Called before the job is read.
  void ListenToJob();
  // The same for the job's logs.
  void ListenToLogs(const std::string& job_uid);
  // Returns the next step when nothing more can be sent now.
  StreamStep AfterAll(const JobSnapshot& snapshot, bool follow,
                      const Merged& merged) const;
  // It has used its time on the thread, or the client is gone.
  bool IsTurnOver() const;
  // Reads until `log` has a line or ends, and enters it into `heads`. Returns
  // false if the turn ends before.
  StatusOr<bool> Fill(RankLog* log, Heads* heads);
  // The same for all logs.
  StatusOr<bool> FillAll(Heads* heads);
  // Reads everything and keeps the last lines of each rank, fewer if they take
  // too much memory; then a line says so. Returns false if the turn ends
  // before.
  StatusOr<bool> ReadTails();
  // Sends unfinished lines that changed since the last call, unless finished
  // lines of their rank wait.
  void SendPartialLines(Sender* sender);
  // Sends what is possible. `more`: further lines may come.
  StatusOr<Merged> SendMerged(bool more, Sender* sender);

  const ClusterQueries* const queries_;
  WatchHub* const hub_;
  LogStore* const store_;
  StreamPeer* const peer_;
  const JobReader reader_;
  const v1::StreamLogsRequest request_;
  JobLogs logs_;
  // The tail is not complete yet.
  bool tailing_;
  MonoTime turn_end_{};
  // The final status after the last message.
  std::optional<Status> end_;
  // Lines read but not taken by the reader.
  std::atomic<int64_t> lines_waiting_ = 0;
  std::optional<WatchHub::Watch> job_news_;
  std::string listened_uid_;
  std::optional<LogStore::Listener> log_news_;
  const StreamMetrics::Open open_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_LOG_STREAM_LOG_STREAM_H_
