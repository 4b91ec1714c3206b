// One reader of a job's logs: follows the files of all its ranks.
#ifndef LOCKSTEP_SERVER_SERVICE_LOG_STREAM_H_
#define LOCKSTEP_SERVER_SERVICE_LOG_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "lockstep/v1/job.pb.h"
#include "server/coordinator/coordinator.h"
#include "server/logs/log_store.h"

namespace lockstep {

// InvalidArgument names the field.
Status CheckLogRequest(const v1::StreamLogsRequest& request);

class LogStream {
 public:
  // `coordinator` and `logs` outlive it. REQUIRES: CheckLogRequest is OK.
  LogStream(Coordinator* coordinator, LogStore* logs,
            v1::StreamLogsRequest request)
      : coordinator_(coordinator), logs_(logs), request_(std::move(request)) {}

  // Sends what is there, merged by time over all ranks, each rank's lines in
  // their own order; and with `follow` what comes, until the job has ended and
  // every log with it. While more may come, a line of the last seconds is held
  // back until every rank has a later one or has ended, at most for 0.3 s.
  // What is in memory at a time is bounded, whatever the logs' size.
  // Of a job that has just ended it waits for what is on its way: without
  // `follow` until 5 s after its end.
  // NotFound: what was being read has been deleted; the lines before it were
  // sent. `write` returns false when the reader is gone.
  Status Run(const std::function<bool(const v1::StreamLogsResponse&)>& write,
             const std::function<bool()>& cancelled);

 private:
  struct Source {
    LogKey key;
    int32_t attempt = 0;
    TaskType type = TaskType::kChief;
    int32_t index = 0;
    uint64_t offset = 0;
    // Bytes of a line that is not complete yet.
    std::string rest;
    // P lines seen so far of a longer one, by stream: the rank's two streams
    // are not in step.
    std::map<std::string, std::string> partial;
    // Its process never was: there is no log to wait for once the job is over.
    bool never_started = false;
    bool done = false;
    struct Line {
      // Its time, but never before the one ahead of it: a host's clock may
      // step back, a rank's lines do not change places.
      int64_t order = 0;
      MonoTime arrived;
      v1::LogLine line;
    };
    // Read and not sent yet.
    std::deque<Line> lines;
    int64_t newest = INT64_MIN;
  };
  // Those whose first line is known, the oldest first.
  using Heads = std::set<std::pair<int64_t, LogKey>>;
  class Sender;

  // InvalidArgument: a rank or an attempt that the job does not have.
  Status CheckSelection(const Job& job) const;
  void FindSources(const Job& job);
  void AddSources(const Job& job, const std::vector<TaskStatus>& tasks,
                  Generation generation, int32_t attempt);
  // Takes complete lines of `source`; false: nothing new.
  StatusOr<bool> ReadSource(Source* source);
  void TakeLine(Source* source, std::string_view bytes, MonoTime arrived) const;
  // Reads until it has a line or there is nothing more, and enters it into
  // `heads`.
  Status Fill(Source* source, Heads* heads);
  // Reads all there is, and keeps the last lines of each rank.
  Status ReadTails(const std::function<bool()>& cancelled);
  // Sends what may be sent. Returns when to try again where lines are held
  // back, else nothing. `more`: lines may still come.
  StatusOr<std::optional<MonoTime>> SendMerged(
      bool more, const std::function<bool()>& cancelled, Sender* sender);

  Coordinator* const coordinator_;
  LogStore* const logs_;
  const v1::StreamLogsRequest request_;
  std::map<LogKey, Source> sources_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_LOG_STREAM_H_
