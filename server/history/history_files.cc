#include "server/history/history_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/logging.h"

namespace lockstep::server {
namespace {

constexpr std::string_view kSuffix = ".json";

// Job names have no dot.
std::string FileNameOf(const std::string& job, const std::string& uid) {
  return fmt::format("{}.{}{}", job, uid, kSuffix);
}

}  // namespace

HistoryFiles::HistoryFiles(FileSystem* files, std::string dir,
                           HistoryFileLimits limits)
    : files_(files), dir_(std::move(dir)), limits_(limits) {
  const auto names = files_->List(dir_);
  if (!names.ok()) {
    LOG_WARN("histories of ended jobs are not shown: {}",
             Message(names.status()));
    return;
  }
  MutexLock lock(&mu_);
  for (const std::string& name : *names) {
    // Others are of an interrupted write.
    const auto info = files_->Stat(JoinPath(dir_, name));
    if (!info.ok()) continue;
    if (!name.ends_with(kSuffix)) {
      files_->Remove(JoinPath(dir_, name)).IgnoreError();
      continue;
    }
    index_[name] = {info->size, FromUnixNanos(info->mtime_unix_nanos)};
    bytes_ += info->size;
  }
}

std::string HistoryFiles::PathOf(const std::string& name) const {
  return JoinPath(dir_, name);
}

Status HistoryFiles::Save(const StoredHistory& history, WallTime now) {
  const std::string name = FileNameOf(history.job, history.uid);
  const std::string text = EncodeHistory(history);
  if (text.size() > kMaxHistoryFile) {
    return ResourceExhausted("the history of job {} has {} bytes, over {}",
                             history.job, text.size(), kMaxHistoryFile);
  }
  LOCKSTEP_RETURN_IF_ERROR(files_->WriteAtomic(PathOf(name), text, 0600));
  MutexLock lock(&mu_);
  File& file = index_[name];
  bytes_ += text.size() - file.bytes;
  file = {text.size(), now};
  return OkStatus();
}

std::optional<StoredHistory> HistoryFiles::Read(const std::string& job,
                                                const std::string& uid) {
  const std::string name = FileNameOf(job, uid);
  {
    MutexLock lock(&mu_);
    const auto file = index_.find(name);
    if (file == index_.end() || file->second.damaged) return std::nullopt;
  }
  const auto text = files_->Read(PathOf(name), kMaxHistoryFile);
  auto history =
      text.ok() ? DecodeHistory(*text) : StatusOr<StoredHistory>(text.status());
  if (history.ok() && (history->job != job || history->uid != uid)) {
    history =
        InvalidArgument("it is of job {}, uid {}", history->job, history->uid);
  }
  if (history.ok()) return *std::move(history);
  LOG_WARN("the history of job {} is not shown: {}: {}", job, PathOf(name),
           Message(history.status()));
  MutexLock lock(&mu_);
  const auto file = index_.find(name);
  if (file != index_.end()) file->second.damaged = true;
  return std::nullopt;
}

void HistoryFiles::Sweep(WallTime now) {
  std::vector<std::string> gone;
  {
    MutexLock lock(&mu_);
    std::vector<std::pair<WallTime, std::string>> oldest;
    for (const auto& [name, file] : index_) {
      oldest.emplace_back(file.written, name);
    }
    std::sort(oldest.begin(), oldest.end());
    for (const auto& [written, name] : oldest) {
      if (now - written <= limits_.age && bytes_ <= limits_.bytes) break;
      bytes_ -= index_[name].bytes;
      index_.erase(name);
      gone.push_back(name);
    }
  }
  for (const std::string& name : gone) {
    const Status status = files_->Remove(PathOf(name));
    if (!status.ok()) {
      LOG_WARN("an old history stays on disk: {}", Message(status));
    }
  }
}

void HistoryFiles::Remove(const std::string& uid) {
  std::string gone;
  {
    MutexLock lock(&mu_);
    const auto file =
        std::find_if(index_.begin(), index_.end(), [&](const auto& known) {
          return known.first.ends_with(fmt::format(".{}{}", uid, kSuffix));
        });
    if (file == index_.end()) return;
    gone = file->first;
    bytes_ -= file->second.bytes;
    index_.erase(file);
  }
  const Status status = files_->Remove(PathOf(gone));
  if (!status.ok()) {
    LOG_WARN("the history of a deleted job stays on disk: {}", Message(status));
  }
}

uint64_t HistoryFiles::bytes() const {
  MutexLock lock(&mu_);
  return bytes_;
}

}  // namespace lockstep::server
