// How long logs are kept: until their job is deleted, or has ended long ago,
// or all of them are too much.
#ifndef LOCKSTEP_SERVER_LOGS_LOG_SWEEPER_H_
#define LOCKSTEP_SERVER_LOGS_LOG_SWEEPER_H_

#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/repeating_thread.h"
#include "server/core/log_owner.h"
#include "server/logs/log_store.h"

namespace lockstep {

struct LogSweeperOptions {
  Duration max_age = std::chrono::hours(24 * 30);
  uint64_t max_bytes = uint64_t{64} << 30;
  Duration interval = std::chrono::minutes(1);
  // From any thread.
  std::function<LogOwner(const std::string& uid)> find_owner;
  // The logs of this job go. From the sweeper's thread; may be empty.
  std::function<void(const std::string& uid)> removed = {};
};

// So long after the end of a job, what its ranks wrote last may still be on its
// way.
inline constexpr Duration kLogsStillComing = std::chrono::minutes(10);

// Whether a node may keep the working directories of a job: as long as the
// coordinator keeps the job's logs.
bool KeepsWork(const LogOwner& owner, bool has_logs, WallTime now);

struct FoundLogs {
  LogStore::JobLogs logs;
  LogOwner owner;
};

// Which of them go; pure. Those of nobody go a day after they were written
// last: the store may be an old copy. Those of jobs that go on never do, nor,
// for their size, those of jobs that ended in the last ten minutes: what ranks
// wrote last is still on its way.
std::vector<std::string> LogsToRemove(std::vector<FoundLogs> found,
                                      Duration max_age, uint64_t max_bytes,
                                      WallTime now);

// Looks at once, and then each interval, on a thread of its own.
class LogSweeper {
 public:
  // `logs` and `clock` outlive it.
  LogSweeper(LogSweeperOptions options, LogStore* logs, const Clock* clock);

 private:
  void Sweep();

  const LogSweeperOptions options_;
  LogStore* const logs_;
  const Clock* const clock_;
  // The last member: it ends before what it works on.
  RepeatingThread thread_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_LOGS_LOG_SWEEPER_H_
