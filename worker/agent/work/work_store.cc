#include "worker/agent/work/work_store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/logging.h"
#include "common/base/random.h"
#include "worker/agent/store/task_store.h"

namespace lockstep::worker::agent {
namespace {

bool IsUid(const std::string& uid) {
  return !uid.empty() && uid.size() <= 64 &&
         std::all_of(uid.begin(), uid.end(), [](unsigned char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                  (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
         });
}

}  // namespace

WorkStore::WorkStore(FileSystem* files, const std::string& dir)
    : files_(files), root_(JoinPath(dir, "work")) {}

StatusOr<std::vector<std::string>> WorkStore::Init() {
  // Other users cannot list it, and a uid cannot be guessed.
  LOCKSTEP_RETURN_IF_ERROR(files_->MakeDirs(root_, 0711));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            files_->List(root_));
  std::vector<std::string> aside;
  for (const std::string& name : names) {
    if (name.starts_with(kAsidePrefix)) {
      aside.push_back(JoinPath(root_, name));
    } else if (IsUid(name)) {
      jobs_.insert(name);
    }
  }
  return aside;
}

StatusOr<std::string> WorkStore::PathOf(const std::string& uid, TaskType type,
                                        int32_t index) const {
  if (!IsUid(uid)) return InvalidArgument("\"{}\" is not a job's uid", uid);
  return JoinPath(JoinPath(root_, uid),
                  fmt::format("{}-{}", Name(type), index));
}

StatusOr<std::string> WorkStore::Make(const std::string& uid, TaskType type,
                                      int32_t index, uid_t owner, gid_t group) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string path, PathOf(uid, type, index));
  const std::string job = JoinPath(root_, uid);
  LOCKSTEP_RETURN_IF_ERROR(files_->MakeDirs(job, 0711));
  jobs_.insert(uid);
  (void)utimensat(AT_FDCWD, job.c_str(), nullptr, 0);
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, "creating the working directory " + path);
  }
  // Also of one that was there: a daemon may have died in between.
  if (owner != geteuid() && lchown(path.c_str(), owner, group) != 0) {
    return ErrnoStatus(errno, "giving " + path + " to the task's user");
  }
  return path;
}

void WorkStore::Settle(const std::string& uid) {
  if (!jobs_.contains(uid)) return;
  const std::string job = JoinPath(root_, uid);
  (void)utimensat(AT_FDCWD, job.c_str(), nullptr, 0);
  const auto names = files_->List(job);
  if (!names.ok()) return;
  // Only what is empty lets itself be removed so.
  for (const std::string& name : *names) {
    (void)rmdir(JoinPath(job, name).c_str());
  }
  if (rmdir(job.c_str()) == 0) jobs_.erase(uid);
}

std::optional<std::string> WorkStore::Oldest(const std::set<std::string>& busy,
                                             WallTime now) const {
  std::optional<std::string> oldest;
  int64_t oldest_time = 0;
  for (const std::string& uid : jobs_) {
    if (busy.contains(uid)) continue;
    const auto info = files_->Stat(JoinPath(root_, uid));
    const int64_t time = info.ok() ? info->mtime_unix_nanos : 0;
    if (ToUnixNanos(now) - time < kKeptAtLeast.count()) continue;
    if (!oldest || time < oldest_time) {
      oldest = uid;
      oldest_time = time;
    }
  }
  return oldest;
}

StatusOr<std::string> WorkStore::SetAside(const std::string& uid) {
  if (!jobs_.contains(uid)) {
    return NotFound("job {} has no working directory here", uid);
  }
  const std::string aside = JoinPath(root_, kAsidePrefix + RandomHex(8));
  LOCKSTEP_RETURN_IF_ERROR(files_->Rename(JoinPath(root_, uid), aside));
  jobs_.erase(uid);
  return aside;
}

}  // namespace lockstep::worker::agent
