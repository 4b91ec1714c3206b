// The logs of a job that a request asks for: one of each rank, and one of the
// job's events. Not safe from several threads.
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

namespace lockstep {

class JobLogs {
 public:
  // Both outlive it. REQUIRES: CheckLogRequest is OK.
  JobLogs(LogStore* logs, const v1::StreamLogsRequest* request);

  // Finds the logs of `job`, and takes the events that are new since the last
  // call.
  void Find(const Job& job);
  // Reads a part of `log`, which is one of all(). Returns false if there is
  // nothing new. What is in memory at a time is bounded over all logs.
  StatusOr<bool> Read(RankLog* log);

  std::map<LogKey, RankLog>& all() { return all_; }
  const LogFilter& filter() const { return filter_; }
  // Whether no line comes any more.
  bool AreOver() const;
  // The number of lines that were read and not sent yet.
  int64_t LinesRead() const;
  int64_t KeptBytes() const;

 private:
  void AddTasks(const Job& job, const std::vector<TaskStatus>& tasks,
                Generation generation, int32_t attempt);
  void TakeEvents(const Job& job);

  LogStore* const logs_;
  const v1::StreamLogsRequest& request_;
  const LogFilter filter_;
  // The tasks whose lines are wanted, without "service"; empty: all.
  std::set<std::string> tasks_;
  bool events_ = false;
  // The time of the last event that was taken, and which events had it.
  int64_t newest_event_ = INT64_MIN;
  std::set<std::string> events_of_moment_;
  std::map<LogKey, RankLog> all_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_LOG_STREAM_JOB_LOGS_H_
