// Spawn of process.h.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "common/os/pidfd.h"
#include "common/os/process.h"

namespace lockstep {
namespace {

// Inherited descriptors are first copied above this number, so that no dup2
// onto 0, 1, 2, 3 ... overwrites one that is still needed.
constexpr int kHigh = 256;

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) {
    pointers.push_back(const_cast<char*>(s.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

// The file actions and attributes of one posix_spawn, with their resources.
class SpawnPlan {
 public:
  SpawnPlan() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  Status Prepare(const SpawnOptions& options) {
    LOCKSTEP_RETURN_IF_ERROR(Put(options.stdin_fd, std::string(), O_RDONLY, 0));
    LOCKSTEP_RETURN_IF_ERROR(Put(options.stdout_fd, options.stdout_path,
                                 O_WRONLY | O_CREAT | O_APPEND, 1));
    LOCKSTEP_RETURN_IF_ERROR(Put(options.stderr_fd, options.stderr_path,
                                 O_WRONLY | O_CREAT | O_APPEND, 2));
    int target = 3;
    for (const int fd : options.fds) {
      LOCKSTEP_RETURN_IF_ERROR(Put(fd, std::string(), O_RDONLY, target++));
    }
    posix_spawn_file_actions_addclosefrom_np(&actions_, target);
    if (!options.cwd.empty()) {
      posix_spawn_file_actions_addchdir_np(&actions_, options.cwd.c_str());
    }
    short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
    if (options.new_session) flags |= POSIX_SPAWN_SETSID;
    sigset_t all;
    sigset_t none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setflags(&attributes_, flags);
    return OkStatus();
  }

  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;

 private:
  // Opened here and not by a file action, so that an error names the file.
  Status Put(int fd, const std::string& path, int flags, int target) {
    Fd held;
    if (fd >= 0 && path.empty()) {
      held = Fd(fcntl(fd, F_DUPFD_CLOEXEC, kHigh));
      if (!held) {
        return ErrnoStatus(errno, fmt::format("passing on descriptor {}", fd));
      }
    } else {
      const std::string file = path.empty() ? "/dev/null" : path;
      const Fd opened(open(file.c_str(), flags | O_CLOEXEC | O_NOCTTY, 0640));
      if (!opened) return ErrnoStatus(errno, "opening " + file);
      held = Fd(fcntl(opened.get(), F_DUPFD_CLOEXEC, kHigh));
      if (!held) return ErrnoStatus(errno, "opening " + file);
    }
    posix_spawn_file_actions_adddup2(&actions_, held.get(), target);
    held_.push_back(std::move(held));
    return OkStatus();
  }

  std::vector<Fd> held_;
};

}  // namespace

std::vector<std::string> CurrentEnvironment() {
  std::vector<std::string> env;
  for (char** e = environ; e != nullptr && *e != nullptr; ++e) {
    env.emplace_back(*e);
  }
  return env;
}

StatusOr<Process> Spawn(const SpawnOptions& options) {
  SpawnPlan plan;
  LOCKSTEP_RETURN_IF_ERROR(
      Annotate(plan.Prepare(options), "starting " + options.program));
  const std::vector<std::string> argv =
      options.argv.empty() ? std::vector<std::string>{options.program}
                           : options.argv;
  const std::vector<char*> argv_pointers = Pointers(argv);
  const std::vector<char*> env_pointers = Pointers(options.env);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, options.program.c_str(), &plan.actions_,
                                 &plan.attributes_, argv_pointers.data(),
                                 env_pointers.data());
  if (error != 0) return ErrnoStatus(error, "starting " + options.program);
  // The pid of an unreaped child is not reused.
  Process process;
  process.id.pid = pid;
  process.pidfd = Fd(PidfdOpen(pid));
  const int pidfd_error = errno;
  StatusOr<uint64_t> start = StartTime(pid);
  if (process.pidfd && start.ok()) {
    process.id.start_time = *start;
    return process;
  }
  // Without a pidfd it must not run. Its pid is not reused yet.
  kill(pid, SIGKILL);
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!process.pidfd) {
    return ErrnoStatus(pidfd_error, "holding " + options.program);
  }
  return start.status();
}

}  // namespace lockstep
