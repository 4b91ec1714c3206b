#include "server/store/backup_schedule.h"

#include <algorithm>
#include <ctime>

#include "common/base/file.h"
#include "common/base/logging.h"
#include "server/store/sqlite_store.h"

namespace lockstep::server {
namespace {

constexpr char kFormat[] = "coordinator-%Y%m%dT%H%M%SZ.db";
// How exactly an interval is kept, and how soon a failure is tried again.
constexpr Duration kLookInterval = std::chrono::seconds(5);
constexpr Duration kRetryInterval = std::chrono::minutes(1);
// Names tell seconds.
constexpr Duration kLeastInterval = std::chrono::seconds(1);

}  // namespace

std::string BackupName(WallTime time) {
  const time_t seconds = static_cast<time_t>(ToUnixNanos(time) / 1'000'000'000);
  tm utc{};
  ::gmtime_r(&seconds, &utc);
  char name[64];
  const size_t size = ::strftime(name, sizeof(name), kFormat, &utc);
  return std::string(name, size);
}

std::optional<WallTime> TimeOfBackup(const std::string& name) {
  tm utc{};
  const char* const end = ::strptime(name.c_str(), kFormat, &utc);
  if (end == nullptr || *end != '\0') return std::nullopt;
  const WallTime time = FromUnixNanos(int64_t{::timegm(&utc)} * 1'000'000'000);
  if (BackupName(time) != name) return std::nullopt;
  return time;
}

std::vector<std::string> BackupsToRemove(std::vector<std::string> names,
                                         size_t keep) {
  std::erase_if(names, [](const std::string& name) {
    return !TimeOfBackup(name).has_value();
  });
  std::sort(names.begin(), names.end());
  if (names.size() <= keep) return {};
  names.resize(names.size() - keep);
  return names;
}

BackupSchedule::BackupSchedule(BackupOptions options, const Clock* clock)
    : options_(std::move(options)), clock_(clock), thread_([this] { Run(); }) {}

BackupSchedule::~BackupSchedule() {
  {
    MutexLock lock(&mu_);
    closed_ = true;
    wake_.NotifyAll();
  }
  thread_.join();
}

BackupStats BackupSchedule::Stats() const {
  MutexLock lock(&mu_);
  return stats_;
}

void BackupSchedule::Run() {
  const Duration pause = std::min(kLookInterval, options_.interval / 4);
  for (;;) {
    Look();
    const MonoTime deadline = MonotonicNow() + pause;
    MutexLock lock(&mu_);
    while (!closed_) {
      if (!wake_.WaitUntil(&mu_, deadline)) break;
    }
    if (closed_) return;
  }
}

void BackupSchedule::Look() {
  FileSystem* files = RealFileSystem();
  const WallTime now = clock_->Now().wall;
  std::optional<WallTime> newest;
  if (const auto names = files->List(options_.dir); names.ok()) {
    for (const std::string& name : *names) {
      const auto time = TimeOfBackup(name);
      // One of a clock that was ahead must not keep others from being made.
      if (time && *time <= now && (!newest || *newest < *time)) newest = time;
    }
  }
  const bool changed = options_.version() != copied_version_;
  {
    MutexLock lock(&mu_);
    stats_.newest = newest;
    if (!changed) {
      stats_.behind_since.reset();
    } else if (!stats_.behind_since) {
      stats_.behind_since = now;
    }
  }
  const Duration interval = std::max(options_.interval, kLeastInterval);
  if (!changed || (newest && now - *newest < interval)) return;
  const Status status = Make(now);
  MutexLock lock(&mu_);
  if (status.ok()) {
    ++stats_.made;
    stats_.newest = now;
    stats_.behind_since.reset();
    return;
  }
  ++stats_.failed;
  LOG_ERROR("no backup of the store: {}", Message(status));
  // The next look comes soon; a full disk is no reason to be busy.
  const MonoTime deadline =
      MonotonicNow() + std::min(kRetryInterval, options_.interval);
  while (!closed_) {
    if (!wake_.WaitUntil(&mu_, deadline)) break;
  }
}

Status BackupSchedule::Make(WallTime now) {
  if (options_.space) LOCKSTEP_RETURN_IF_ERROR(options_.space());
  FileSystem* files = RealFileSystem();
  LOCKSTEP_RETURN_IF_ERROR(files->MakeDirs(options_.dir, 0700));
  const std::string path = JoinPath(options_.dir, BackupName(now));
  // Commits go on: at least these are in it.
  const int64_t version = options_.version();
  LOCKSTEP_RETURN_IF_ERROR(BackupSqliteStore(options_.store, path));
  if (const auto report = VerifySqliteStore(path, false); !report.ok()) {
    (void)files->Remove(path);
    return report.status();
  }
  copied_version_ = version;
  Prune();
  return OkStatus();
}

void BackupSchedule::Prune() {
  FileSystem* files = RealFileSystem();
  const auto names = files->List(options_.dir);
  if (!names.ok()) return;
  for (const std::string& name : BackupsToRemove(*names, options_.keep)) {
    if (const Status gone = files->Remove(JoinPath(options_.dir, name));
        !gone.ok()) {
      LOG_WARN("an old backup stays: {}", Message(gone));
    }
  }
}

}  // namespace lockstep::server
