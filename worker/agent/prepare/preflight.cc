#include "worker/agent/prepare/preflight.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/random.h"
#include "common/os/as_user.h"
#include "worker/agent/prepare/python_command.h"

namespace lockstep::worker::agent {
namespace {

constexpr uint64_t kShmFloor = uint64_t{16} << 20;
constexpr uint64_t kShmOfGpu = uint64_t{32} << 20;

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
      return FailedPrecondition("{} needs {} GPUs, but {} are assigned",
                                TaskName(task.type, task.index),
                                task.resources.gpus, task.gpus.size());
    }
  }
  return OkStatus();
}

// Programs share memory by it: workers that load data, NCCL between GPUs.
Status CheckShm(const PreflightInput& input) {
  constexpr uint64_t kMiB = 1 << 20;
  uint64_t needed = 0;
  for (const LocalTask& task : input.spec->tasks) {
    // A container has its own.
    if (task.container) continue;
    needed = std::max(needed, kShmFloor) + kShmOfGpu * task.gpus.size();
  }
  if (!input.shm || input.shm->free >= needed) return OkStatus();
  if (input.shm->size < needed) {
    return FailedPrecondition(
        "/dev/shm of this host has {} MiB, and the tasks need {}: mount it "
        "with a larger size",
        input.shm->size / kMiB, needed / kMiB);
  }
  return Unavailable(
      "/dev/shm of this host is nearly full: {} of {} MiB are free, and the "
      "tasks need {}",
      input.shm->free / kMiB, input.shm->size / kMiB, needed / kMiB);
}

Status CheckScript(const std::string& script, const std::string& directory) {
  if (script.empty()) return OkStatus();
  const std::string file = JoinPath(directory, script);
  struct stat info {};
  if (stat(file.c_str(), &info) == 0) return OkStatus();
  // The task's user may have rights that the daemon lacks.
  if (errno != ENOENT && errno != ENOTDIR) return OkStatus();
  return FailedPrecondition("the script {} is not on this host", file);
}

Status CheckPrograms(const PreflightInput& input) {
  for (const LocalTask& task : input.spec->tasks) {
    // The engine checks programs inside an image.
    if (task.container) continue;
    const std::vector<std::string> argv = CommandOf(*input.spec, task);
    if (argv.empty()) {
      return FailedPrecondition("{} has no program",
                                TaskName(task.type, task.index));
    }
    const auto own = task.environment.find("PATH");
    const std::string& path =
        own != task.environment.end() ? own->second : input.path;
    const std::string& directory = input.spec->working_directory.empty()
                                       ? input.task_directory
                                       : input.spec->working_directory;
    if (const auto found = FindProgram(argv[0], path, directory); !found.ok()) {
      return FailedPrecondition("{}", Message(found.status()));
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckScript(ScriptOf(argv), directory));
  }
  return OkStatus();
}

// Returns whether the mode bits give `user` the rights of `owner` on `path`.
// Only a process of that user could test it; the bits nearly always suffice.
bool Allows(const std::string& path, const TaskUser& user, mode_t owner) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || user.uid == 0) return true;
  const bool in_group =
      info.st_gid == user.gid ||
      std::count(user.groups.begin(), user.groups.end(), info.st_gid) > 0;
  const mode_t needed = info.st_uid == user.uid ? owner
                        : in_group              ? owner >> 3
                                                : owner >> 6;
  return (info.st_mode & needed) != 0;
}

Status CheckWorkingDirectory(FileSystem* files, const std::string& path,
                             const std::optional<TaskUser>& user) {
  if (path.empty()) return OkStatus();
  const auto info = files->Stat(path);
  if (!info.ok()) {
    return FailedPrecondition("the working directory {} is not on this host",
                              path);
  }
  if (!info->is_directory) {
    return FailedPrecondition("the working directory {} is not a directory",
                              path);
  }
  if (user && user->uid != geteuid() && !Allows(path, *user, S_IXUSR)) {
    return FailedPrecondition(
        "the working directory {} cannot be entered by user {}", path,
        user->uid);
  }
  return OkStatus();
}

Status TryOutputDirectory(FileSystem* files, const std::string& path) {
  if (const Status made = files->MakeDirs(path); !made.ok()) {
    return PreflightRefusal(
        made, fmt::format("cannot create the output directory {}: {}", path,
                          Message(made)));
  }
  if (!files->Stat(path).value_or(FileInfo{}).is_directory) {
    return FailedPrecondition("the output directory {} is not a directory",
                              path);
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
    return PreflightRefusal(written,
                            fmt::format("the output directory {} is not "
                                        "writable: {}",
                                        path, Message(written)));
  }
  return OkStatus();
}

// With the rights of the ranks' user, for the job names the path: root would
// make and write what that user must not.
Status CheckOutputDirectory(FileSystem* files, std::string path,
                            const std::optional<TaskUser>& user) {
  if (path.empty()) return OkStatus();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (!user || user->uid == geteuid()) return TryOutputDirectory(files, path);
  Status status;
  {
    const AsUser as(user->uid, user->gid, user->groups);
    if (!as.ok()) {
      return FailedPrecondition(
          "the worker cannot check the output directory {} as user {}: it does "
          "not run as root",
          path, user->uid);
    }
    status = TryOutputDirectory(files, path);
  }
  return Annotate(status, fmt::format("user {}", user->uid));
}

}  // namespace

Status PreflightRefusal(const Status& cause, const std::string& sentence) {
  switch (cause.code()) {
    case StatusCode::kResourceExhausted:  // ENOSPC, EMFILE ...
    case StatusCode::kUnavailable:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kInternal:  // EIO, ESTALE ...
      return Unavailable("{}", sentence);
    default:
      return FailedPrecondition("{}", sentence);
  }
}

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
      return PermissionDenied(
          "program {} is not an executable file on this host", file);
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

Status Preflight(FileSystem* files, const PreflightInput& input) {
  if (input.disk) {
    LOCKSTEP_RETURN_IF_ERROR(
        CheckDiskSpace(input.state_directory, *input.disk, input.disk_floor));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckGpus(input));
  LOCKSTEP_RETURN_IF_ERROR(CheckShm(input));
  const std::string& output = input.spec->output_directory;
  const std::string& work = input.spec->working_directory;
  // If ranks start in the output directory, create it first.
  const bool starts_there = !output.empty() && work == output;
  if (starts_there) {
    LOCKSTEP_RETURN_IF_ERROR(CheckOutputDirectory(files, output, input.user));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckWorkingDirectory(files, work, input.user));
  LOCKSTEP_RETURN_IF_ERROR(CheckPrograms(input));
  if (starts_there) return OkStatus();
  return CheckOutputDirectory(files, output, input.user);
}

}  // namespace lockstep::worker::agent
