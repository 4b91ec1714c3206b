// One reader of a job's logs: follows the files of all its ranks. It holds no
// thread while nothing is written: the log store and the watch hub wake it.
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
  int64_t KeptBytes() const override { return logs_.KeptBytes(); }

 private:
  // The logs whose first line is known, the oldest line first.
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
  // Reads until `log` has a line or there is nothing more, and enters it into
  // `heads`. Returns false if the turn is over before that.
  StatusOr<bool> Fill(RankLog* log, Heads* heads);
  // Does this for all logs.
  StatusOr<bool> FillAll(Heads* heads);
  // Reads all there is, and keeps the last lines of each rank; fewer where they
  // take too much memory, which a line in their place says. False: the turn is
  // over before the end.
  StatusOr<bool> ReadTails();
  // Sends lines that have no end yet, where they changed since the last call
  // and no line of their rank waits.
  void SendPartialLines(Sender* sender);
  // Sends what may be sent. `more`: lines may still come.
  StatusOr<Merged> SendMerged(bool more, Sender* sender);

  const ClusterQueries* const queries_;
  WatchHub* const hub_;
  LogStore* const store_;
  StreamPeer* const peer_;
  const JobReader reader_;
  const v1::StreamLogsRequest request_;
  JobLogs logs_;
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
