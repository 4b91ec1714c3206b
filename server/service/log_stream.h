// One reader of a job's logs: follows the files of all its ranks.
#ifndef LOCKSTEP_SERVER_SERVICE_LOG_STREAM_H_
#define LOCKSTEP_SERVER_SERVICE_LOG_STREAM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

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

  // Sends what is there, by time over all ranks as far as it is known, and
  // with `follow` what comes, until the job has ended and every log with it.
  // Of a job that has just ended it waits for what is on its way: without
  // `follow` until 5 s after its end.
  // `write` returns false when the reader is gone.
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
  };

  // InvalidArgument: a rank or an attempt that the job does not have.
  Status CheckSelection(const Job& job) const;
  void FindSources(const Job& job);
  void AddSources(const Job& job, const std::vector<TaskStatus>& tasks,
                  Generation generation, int32_t attempt);
  // Appends complete lines of `source`; false: nothing new.
  StatusOr<bool> ReadSource(Source* source, std::vector<v1::LogLine>* lines);
  void TakeLine(Source* source, std::string_view bytes,
                std::vector<v1::LogLine>* lines) const;

  Coordinator* const coordinator_;
  LogStore* const logs_;
  const v1::StreamLogsRequest request_;
  std::map<LogKey, Source> sources_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_LOG_STREAM_H_
