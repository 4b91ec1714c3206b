#include "server/logs/log_sweeper.h"

#include <algorithm>

#include "common/base/logging.h"

namespace lockstep::server {
namespace {

// A store from an old backup lacks the newest jobs. The operator has a day to
// notice and restore the right one.
constexpr Duration kOrphanGrace = std::chrono::hours(24);

}  // namespace

bool KeepsWork(const LogOwner& owner, bool has_logs, WallTime now) {
  // The directory of an unknown job is kept as long as its logs.
  if (!owner.known) return has_logs;
  return has_logs || !owner.end_time ||
         now - *owner.end_time <= kLogsStillComing;
}

std::vector<std::string> LogsToRemove(std::vector<FoundLogs> found,
                                      Duration max_age, uint64_t max_bytes,
                                      WallTime now) {
  std::vector<std::string> gone;
  uint64_t total = 0;
  std::vector<const FoundLogs*> ended;
  for (const FoundLogs& entry : found) {
    const bool over =
        entry.owner.known
            ? entry.owner.end_time && now - *entry.owner.end_time > max_age
            : now - entry.logs.last_write > kOrphanGrace;
    if (over) {
      gone.push_back(entry.logs.uid);
      continue;
    }
    total += entry.logs.bytes;
    if (entry.owner.end_time &&
        now - *entry.owner.end_time > kLogsStillComing) {
      ended.push_back(&entry);
    }
  }
  std::sort(ended.begin(), ended.end(),
            [](const FoundLogs* a, const FoundLogs* b) {
              return *a->owner.end_time < *b->owner.end_time;
            });
  for (const FoundLogs* entry : ended) {
    if (total <= max_bytes) break;
    total -= entry->logs.bytes;
    gone.push_back(entry->logs.uid);
  }
  return gone;
}

LogSweeper::LogSweeper(LogSweeperOptions options, LogStore* logs,
                       const Clock* clock)
    : options_(std::move(options)),
      logs_(logs),
      clock_(clock),
      thread_(options_.interval, [this] { Sweep(); }) {}

void LogSweeper::Sweep() {
  auto listed = logs_->List();
  if (!listed.ok()) {
    LOG_WARN("logs are not swept: {}", Message(listed.status()));
    return;
  }
  // Read after the listing, because a job is stored before it writes logs.
  std::vector<FoundLogs> found;
  for (LogStore::JobLogs& logs : *listed) {
    LogOwner owner = options_.find_owner(logs.uid);
    found.push_back({std::move(logs), owner});
  }
  const std::vector<std::string> gone =
      LogsToRemove(std::move(found), options_.max_age, options_.max_bytes,
                   clock_->Now().wall);
  for (const std::string& uid : gone) {
    logs_->Remove(uid);
    if (options_.removed) options_.removed(uid);
  }
  if (!gone.empty()) LOG_INFO("removing the logs of {} jobs", gone.size());
}

}  // namespace lockstep::server
