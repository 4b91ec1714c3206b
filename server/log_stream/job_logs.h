// The logs of a job that a request selects: one per rank, and one of the job's
// events. Not thread-safe.
#ifndef LOCKSTEP_SERVER_LOG_STREAM_JOB_LOGS_H_
#define LOCKSTEP_SERVER_LOG_STREAM_JOB_LOGS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "lockstep/v1/job.pb.h"
#include "server/core/job.h"
#include "server/log_stream/rank_log.h"
#include "server/logs/log_filter.h"
#include "server/logs/log_store.h"

namespace lockstep::server {

class JobLogs {
 public:
  // Both outlive this object. REQUIRES: CheckLogRequest is OK.
  JobLogs(LogStore* logs, const v1::StreamLogsRequest* request);

  // Finds the logs of `job` and takes events newer than those of the last call.
  void Find(const Job& job);
  // Reads a part of `log`, one of all(). Returns false if there is nothing new.
  // The memory for all logs together is bounded.
  StatusOr<bool> Read(RankLog* log);

  std::map<LogKey, RankLog>& all() { return all_; }
  const LogFilter& filter() const { return filter_; }
  // True if no more lines will come.
  bool AreOver() const;
  // Lines that were read and not sent yet.
  int64_t LinesRead() const;
  int64_t KeptBytes() const;

 private:
  void AddTasks(const Job& job, const std::vector<TaskStatus>& tasks,
                Generation generation, int32_t attempt);
  void TakeEvents(const Job& job);

  LogStore* const logs_;
  const v1::StreamLogsRequest& request_;
  const LogFilter filter_;
  // The selected tasks, without "service". Empty for all.
  std::set<std::string> tasks_;
  bool events_ = false;
  // The time of the newest event taken, and the events with that time.
  int64_t newest_event_ = INT64_MIN;
  std::set<std::string> events_of_moment_;
  std::map<LogKey, RankLog> all_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_LOG_STREAM_JOB_LOGS_H_
