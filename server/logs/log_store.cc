#include "server/logs/log_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "common/base/fd.h"
#include "common/base/logging.h"

namespace lockstep::server {
namespace {

constexpr size_t kMaxQueuedBytes = 64 << 20;
// Limit of open files; others are reopened on demand.
constexpr size_t kMaxOpen = 256;

}  // namespace

LogStore::LogStore(FileSystem* files, std::string dir)
    : files_(files), dir_(std::move(dir)), thread_([this] { Run(); }) {}

LogStore::~LogStore() {
  Close();
  thread_.join();
}

void LogStore::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
  wake_.NotifyAll();
  for (const auto& [uid, listener] : listeners_) listener->on_change_();
}

LogStore::Listener::Listener(LogStore* store, std::string job_uid,
                             std::function<void()> on_change)
    : store_(store), on_change_(std::move(on_change)) {
  MutexLock lock(&store_->mu_);
  at_ = store_->listeners_.emplace(std::move(job_uid), this);
}

LogStore::Listener::~Listener() {
  MutexLock lock(&store_->mu_);
  store_->listeners_.erase(at_);
}

void LogStore::NotifyListeners(const std::set<std::string>& uids) {
  MutexLock lock(&mu_);
  for (const std::string& uid : uids) {
    const auto [first, last] = listeners_.equal_range(uid);
    for (auto it = first; it != last; ++it) it->second->on_change_();
  }
}

std::string LogStore::PathOf(const LogKey& key, const char* suffix) const {
  return fmt::format(
      "{}/{}/g{}-r{}{}.{}", dir_, key.job_uid, key.generation, key.rank,
      key.moves == 0 ? "" : fmt::format(".{}", key.moves), suffix);
}

Status LogStore::Append(const LogKey& key, uint64_t offset, std::string data,
                        bool end, OnAck on_ack, int32_t life) {
  MutexLock lock(&mu_);
  if (closed_) return Unavailable("the log store is closed");
  if (queued_bytes_ + data.size() > kMaxQueuedBytes) {
    return ResourceExhausted("more than {} MiB of logs wait to be written",
                             kMaxQueuedBytes >> 20);
  }
  queued_bytes_ += data.size();
  queue_.push_back(
      {key, offset, std::move(data), end, std::move(on_ack), life});
  wake_.NotifyOne();
  return OkStatus();
}

void LogStore::Run() {
  for (;;) {
    std::deque<Piece> pieces;
    std::set<std::string> removals;
    {
      MutexLock lock(&mu_);
      while (queue_.empty() && removals_.empty() && !closed_) wake_.Wait(&mu_);
      if (queue_.empty() && removals_.empty()) return;
      pieces.swap(queue_);
      removals.swap(removals_);
      queued_bytes_ = 0;
    }
    std::set<std::string> changed = removals;
    for (const Piece& piece : pieces) changed.insert(piece.key.job_uid);
    WriteAll(std::move(pieces));
    for (const std::string& uid : removals) RemoveNow(uid);
    NotifyListeners(changed);
  }
}

StatusOr<LogStore::Target*> LogStore::Open(const LogKey& key) {
  const auto it = open_.find(key);
  if (it != open_.end()) return &it->second;
  if (open_.size() >= kMaxOpen) open_.clear();
  LOCKSTEP_RETURN_IF_ERROR(files_->MakeDirs(JoinPath(dir_, key.job_uid), 0700));
  const std::string path = PathOf(key, "log");
  Target target;
  LOCKSTEP_ASSIGN_OR_RETURN(target.file, files_->OpenAppend(path, 0600));
  LOCKSTEP_ASSIGN_OR_RETURN(const FileInfo info, files_->Stat(path));
  target.size = info.size;
  // Left by an earlier run or a failed write.
  target.unsynced = target.size > 0;
  if (target.size == 0) {
    // Syncs its name and that of the job's folder.
    LOCKSTEP_RETURN_IF_ERROR(files_->SyncDir(JoinPath(dir_, key.job_uid)));
    LOCKSTEP_RETURN_IF_ERROR(files_->SyncDir(dir_));
  }
  target.ended = EndedLife(key);
  return &open_.emplace(key, std::move(target)).first->second;
}

Status LogStore::WriteOne(const Piece& piece, Target* target) {
  if (piece.offset > target->size) return OkStatus();  // A gap.
  const uint64_t known = target->size - piece.offset;
  if (known < piece.data.size()) {
    const std::string_view fresh = std::string_view(piece.data).substr(known);
    LOCKSTEP_RETURN_IF_ERROR(target->file->Append(fresh));
    target->size += fresh.size();
    target->unsynced = true;
    if (target->ended) {
      // A rank that restarted alone continues its log.
      LOCKSTEP_RETURN_IF_ERROR(files_->Remove(PathOf(piece.key, "end")));
      target->ended.reset();
    }
    target->ending = false;
  }
  if (piece.end && piece.offset + piece.data.size() == target->size) {
    target->ending = true;
    target->ending_life = piece.life;
  }
  return OkStatus();
}

Status LogStore::Settle(const LogKey& key, Target* target) {
  if (target->unsynced) LOCKSTEP_RETURN_IF_ERROR(target->file->Sync());
  target->unsynced = false;
  // A restarted rank may end without output.
  if (target->ending &&
      (!target->ended || *target->ended < target->ending_life)) {
    const int32_t life = target->ending_life;
    LOCKSTEP_RETURN_IF_ERROR(files_->WriteAtomic(
        PathOf(key, "end"), life == 0 ? "" : std::to_string(life), 0600));
    target->ended = life;
  }
  return OkStatus();
}

void LogStore::WriteAll(std::deque<Piece> pieces) {
  // One log at a time: each is synced once for all its pieces before its file
  // may be closed to make room.
  std::map<LogKey, std::vector<Piece*>> logs;
  for (Piece& piece : pieces) logs[piece.key].push_back(&piece);
  for (const auto& [key, of_log] : logs) {
    const auto written = WriteLog(key, of_log);
    if (!written.ok()) {
      // Written bytes may be lost, and only the file shows how many arrived. So
      // nothing is acknowledged, and the file is read again.
      LOG_ERROR("logs: {}", Message(written.status()));
      open_.erase(key);
      continue;
    }
    if (written->end) open_.erase(key);
    // The newest piece acknowledges all.
    of_log.back()->on_ack(*written);
  }
}

StatusOr<LogStore::Ack> LogStore::WriteLog(const LogKey& key,
                                           const std::vector<Piece*>& pieces) {
  LOCKSTEP_ASSIGN_OR_RETURN(Target* const target, Open(key));
  for (const Piece* piece : pieces) {
    LOCKSTEP_RETURN_IF_ERROR(WriteOne(*piece, target));
  }
  LOCKSTEP_RETURN_IF_ERROR(Settle(key, target));
  return Ack{target->size, target->ended.has_value()};
}

StatusOr<std::string> LogStore::Read(const LogKey& key, uint64_t offset,
                                     size_t limit) {
  const std::string path = PathOf(key, "log");
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT && offset == 0) return std::string();
    if (errno == ENOENT) {
      return NotFound("the log of rank {} g{} was removed while it was read",
                      key.rank, key.generation);
    }
    return ErrnoStatus(errno, "opening " + path);
  }
  std::string data(limit, '\0');
  size_t size = 0;
  while (size < limit) {
    const ssize_t n = ::pread(fd.get(), data.data() + size, limit - size,
                              static_cast<off_t>(offset + size));
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "reading " + path);
    }
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  data.resize(size);
  return data;
}

void LogStore::Remove(const std::string& job_uid) {
  if (job_uid.empty() || job_uid.find('/') != std::string::npos) return;
  MutexLock lock(&mu_);
  if (closed_) return;  // The next start removes it.
  removals_.insert(job_uid);
  wake_.NotifyOne();
}

bool LogStore::Has(const std::string& job_uid) {
  return !job_uid.empty() && job_uid.find('/') == std::string::npos &&
         files_->Exists(JoinPath(dir_, job_uid));
}

void LogStore::RemoveNow(const std::string& job_uid) {
  std::erase_if(
      open_, [&](const auto& entry) { return entry.first.job_uid == job_uid; });
  const Status status = files_->RemoveAll(JoinPath(dir_, job_uid));
  if (!status.ok()) LOG_WARN("removing logs: {}", Message(status));
}

StatusOr<std::vector<LogStore::JobLogs>> LogStore::List() {
  std::vector<JobLogs> jobs;
  if (!files_->Exists(dir_)) return jobs;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> uids,
                            files_->List(dir_));
  for (const std::string& uid : uids) {
    JobLogs logs{uid, 0, {}};
    const std::string path = JoinPath(dir_, uid);
    // It may disappear meanwhile.
    const auto names = files_->List(path);
    if (!names.ok()) continue;
    for (const std::string& name : *names) {
      if (const auto info = files_->Stat(JoinPath(path, name)); info.ok()) {
        logs.bytes += info->size;
        logs.last_write =
            std::max(logs.last_write, FromUnixNanos(info->mtime_unix_nanos));
      }
    }
    jobs.push_back(std::move(logs));
  }
  return jobs;
}

StatusOr<uint64_t> LogStore::SizeOf(const LogKey& key) const {
  const auto info = files_->Stat(PathOf(key, "log"));
  if (info.status().code() == StatusCode::kNotFound) return 0;
  LOCKSTEP_RETURN_IF_ERROR(info.status());
  return info->size;
}

std::optional<int32_t> LogStore::EndedLife(const LogKey& key) {
  const std::string path = PathOf(key, "end");
  if (!files_->Exists(path)) return std::nullopt;
  const auto text = files_->Read(path, 16);
  int32_t life = 0;
  if (text.ok()) {
    std::from_chars(text->data(), text->data() + text->size(), life);
  }
  return life;
}

}  // namespace lockstep::server
