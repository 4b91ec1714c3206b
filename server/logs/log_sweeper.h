// Deletes logs after their job was deleted or ended long ago, or if all logs
// together are too large.
#ifndef LOCKSTEP_SERVER_LOGS_LOG_SWEEPER_H_
#define LOCKSTEP_SERVER_LOGS_LOG_SWEEPER_H_

#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/repeating_thread.h"
#include "server/core/log_owner.h"
#include "server/logs/log_store.h"

namespace lockstep::server {

struct LogSweeperOptions {
  Duration max_age = std::chrono::hours(24 * 30);
  uint64_t max_bytes = uint64_t{64} << 30;
  Duration interval = std::chrono::minutes(1);
  // Called from any thread.
  std::function<LogOwner(const std::string& uid)> find_owner;
  // Called on the sweeper's thread after this job's logs were removed. May be
  // empty.
  std::function<void(const std::string& uid)> removed = {};
};

// How long after a job's end its ranks' last output may still arrive.
inline constexpr Duration kLogsStillComing = std::chrono::minutes(10);

// True if a node may keep the working directories of a job: as long as the
// coordinator keeps the job's logs.
bool KeepsWork(const LogOwner& owner, bool has_logs, WallTime now);

struct FoundLogs {
  LogStore::JobLogs logs;
  LogOwner owner;
};

// Returns the logs to delete. Pure. Logs without a job are deleted a day after
// the last write, because the store may be an old copy. Logs of unfinished jobs
// are kept. Logs of jobs that ended in the last ten minutes are not deleted for
// size, because output may still arrive.
std::vector<std::string> LogsToRemove(std::vector<FoundLogs> found,
                                      Duration max_age, uint64_t max_bytes,
                                      WallTime now);

// Sweeps at once and then at each interval, on its own thread.
class LogSweeper {
 public:
  // `logs` and `clock` outlive this object.
  LogSweeper(LogSweeperOptions options, LogStore* logs, const Clock* clock);

 private:
  void Sweep();

  const LogSweeperOptions options_;
  LogStore* const logs_;
  const Clock* const clock_;
  // The last member, so that it stops before the others are destroyed.
  RepeatingThread thread_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_LOGS_LOG_SWEEPER_H_
