#include "worker/agent/preflight.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/random.h"

namespace lockstep {
namespace {

// Whether what `cause` says of a file system may be otherwise in a moment.
bool MayPass(const Status& cause) {
  switch (cause.code()) {
    case StatusCode::kResourceExhausted:  // ENOSPC, EMFILE ...
    case StatusCode::kUnavailable:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kInternal:  // EIO, ESTALE ...
      return true;
    default:
      return false;
  }
}

// `sentence`, with the code that says whether to ask again.
Status Refusal(const Status& cause, const std::string& sentence) {
  return MayPass(cause) ? Unavailable("{}", sentence)
                        : FailedPrecondition("{}", sentence);
}

Status CheckGpus(const PreflightInput& input) {
  for (const LocalTask& task : input.spec->tasks) {
    for (const int32_t index : task.gpus) {
      const bool here =
          std::any_of(input.gpus.begin(), input.gpus.end(),
                      [&](const Gpu& gpu) { return gpu.index == index; });
      if (!here) {
        return FailedPrecondition("GPU {} is not on this host, which has {}",
                                  index, input.gpus.size());
      }
      if (input.gpus_in_use.contains(index)) {
        return Unavailable("GPU {} is in use by another job", index);
      }
    }
    if (task.gpus.size() < static_cast<size_t>(task.resources.gpus)) {
      return FailedPrecondition("{} needs {} GPUs and was given {}",
                                TaskName(task.type, task.index),
                                task.resources.gpus, task.gpus.size());
    }
  }
  return OkStatus();
}

Status CheckPrograms(const PreflightInput& input) {
  for (const LocalTask& task : input.spec->tasks) {
    const auto own = task.environment.find("PATH");
    const std::string& path =
        own != task.environment.end() ? own->second : input.path;
    const std::string& directory = input.spec->working_directory.empty()
                                       ? input.task_directory
                                       : input.spec->working_directory;
    if (const auto found = FindProgram(task.argv[0], path, directory);
        !found.ok()) {
      return FailedPrecondition("{}", Message(found.status()));
    }
  }
  return OkStatus();
}

Status CheckWorkingDirectory(FileSystem* files, const std::string& path) {
  if (path.empty()) return OkStatus();
  const auto info = files->Stat(path);
  if (!info.ok()) {
    return FailedPrecondition("the working directory {} is not on this host",
                              path);
  }
  if (!info->is_directory) {
    return FailedPrecondition("the working directory {} is no directory", path);
  }
  return OkStatus();
}

// The ranks' user must own what is made for them.
Status MakeDirsFor(FileSystem* files, const std::string& path,
                   const std::optional<TaskUser>& user) {
  std::string missing;  // The topmost directory that is not there yet.
  for (std::string at = path; !at.empty() && !files->Exists(at);) {
    missing = at;
    at.resize(at.find_last_of('/'));
  }
  LOCKSTEP_RETURN_IF_ERROR(files->MakeDirs(path));
  if (!user || missing.empty()) return OkStatus();
  for (size_t at = missing.size();; at = path.find('/', at + 1)) {
    const std::string made = path.substr(0, at);
    if (chown(made.c_str(), user->uid, user->gid) != 0) {
      return ErrnoStatus(errno, "giving " + made + " to the task's user");
    }
    if (at == std::string::npos || at >= path.size()) break;
  }
  return OkStatus();
}

Status CheckOutputDirectory(FileSystem* files, std::string path,
                            const std::optional<TaskUser>& user) {
  if (path.empty()) return OkStatus();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (const Status made = MakeDirsFor(files, path, user); !made.ok()) {
    return Refusal(made, fmt::format("the output directory {} cannot be made: "
                                     "{}",
                                     path, Message(made)));
  }
  if (!files->Stat(path).value_or(FileInfo{}).is_directory) {
    return FailedPrecondition("the output directory {} is no directory", path);
  }
  if (user && user->uid != geteuid()) {
    // Whether another user may write cannot be tried from here; its bits say
    // nearly always.
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) return OkStatus();
    const bool in_group =
        info.st_gid == user->gid ||
        std::count(user->groups.begin(), user->groups.end(), info.st_gid) > 0;
    const mode_t needed = info.st_uid == user->uid ? S_IWUSR
                          : in_group               ? S_IWGRP
                                                   : S_IWOTH;
    if ((info.st_mode & needed) == 0) {
      return FailedPrecondition(
          "the output directory {} is not writable for user {}", path,
          user->uid);
    }
    return OkStatus();
  }
  // Writing is the only sure test: of a read-only or full file system, too.
  const std::string probe = JoinPath(path, ".lockstep-" + RandomHex(8));
  auto file = files->Create(probe, 0600);
  Status written = file.status();
  if (file.ok()) {
    written = (*file)->Append("x");
    if (written.ok()) written = (*file)->Close();
    (void)files->Remove(probe);
  }
  if (!written.ok()) {
    return Refusal(written, fmt::format("the output directory {} is not "
                                        "writable: {}",
                                        path, Message(written)));
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::string> FindProgram(const std::string& name,
                                  const std::string& path,
                                  const std::string& directory) {
  const auto check = [](const std::string& file) {
    struct stat info {};
    if (stat(file.c_str(), &info) != 0) return errno;
    if (!S_ISREG(info.st_mode)) return EACCES;
    return access(file.c_str(), X_OK) == 0 ? 0 : errno;
  };
  if (name.find('/') != std::string::npos) {
    const std::string file = JoinPath(directory, name);
    const int error = check(file);
    if (error == 0) return file;
    if (error == EACCES) {
      return PermissionDenied("program {} is no executable file on this host",
                              file);
    }
    return NotFound("program {} is not on this host", file);
  }
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find(':', at), path.size());
    // An empty part means the current directory to execvp.
    const std::string part =
        end == at ? std::string(".") : path.substr(at, end - at);
    const std::string file = JoinPath(JoinPath(directory, part), name);
    if (check(file) == 0) return file;
    at = end + 1;
  }
  return NotFound("program {} is not in PATH ({}) of this host", name, path);
}

uint64_t BytesOf(const DiskFloor& floor, uint64_t size) {
  return std::min(floor.bytes, static_cast<uint64_t>(
                                   floor.part * static_cast<double>(size)));
}

Status CheckDiskSpace(const std::string& path, const DiskSpace& space,
                      const DiskFloor& floor) {
  const uint64_t needed = BytesOf(floor, space.size);
  if (space.free >= needed) return OkStatus();
  constexpr double kMiB = 1 << 20;
  return Unavailable(
      "the disk of {} is nearly full: {:.0f} MiB are free, and nothing is "
      "started with less than {:.0f} MiB",
      path, static_cast<double>(space.free) / kMiB,
      static_cast<double>(needed) / kMiB);
}

Status Preflight(FileSystem* files, const PreflightInput& input) {
  if (input.disk) {
    LOCKSTEP_RETURN_IF_ERROR(
        CheckDiskSpace(input.state_directory, *input.disk, input.disk_floor));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckGpus(input));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckWorkingDirectory(files, input.spec->working_directory));
  LOCKSTEP_RETURN_IF_ERROR(CheckPrograms(input));
  return CheckOutputDirectory(files, input.spec->output_directory, input.user);
}

}  // namespace lockstep
