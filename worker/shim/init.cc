#include "worker/shim/init.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "worker/shim/init_report.h"
#include "worker/shim/io.h"

namespace lockstep::worker::shim {
namespace {

// The container's own group is the root of what it sees.
uint32_t ReadOomKills() {
  for (const char* path : {"/sys/fs/cgroup/memory.events",
                           "/sys/fs/cgroup/memory/memory.oom_control"}) {
    std::string text;
    if (ReadFile(path, &text)) return OomKillsIn(text);
  }
  return 0;
}

// -1 if there is no reader.
int ReportFd() {
  struct stat info {};
  if (fstat(kInitReportFd, &info) != 0 || !S_ISFIFO(info.st_mode)) return -1;
  fcntl(kInitReportFd, F_SETFD, FD_CLOEXEC);
  return kInitReportFd;
}

void Tell(int fd, const InitReport& report) {
  if (fd >= 0) (void)!write(fd, &report, sizeof(report));
}

[[noreturn]] void RunProgram(char** argv, int failed) {
  setsid();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvp(argv[0], argv);
  const int error = errno;
  (void)!write(failed, &error, sizeof(error));
  _exit(error == ENOENT ? 127 : 126);
}

// Reaps what has ended. True once the program has, with its wait status.
bool Reap(pid_t program, int* wait_status) {
  bool ended = false;
  for (;;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) return ended;
    if (pid != program) continue;
    *wait_status = status;
    ended = true;
  }
}

}  // namespace

uint32_t OomKillsIn(std::string_view text) {
  static constexpr std::string_view kName = "oom_kill ";
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!line.starts_with(kName)) continue;
    return static_cast<uint32_t>(
        strtoul(std::string(line.substr(kName.size())).c_str(), nullptr, 10));
  }
  return 0;
}

std::string ChangedMount() {
  std::string changed;
  for (int i = 0;; ++i) {
    const std::string name = kMountVariable + std::to_string(i);
    const char* const text = getenv(name.c_str());
    if (text == nullptr) return changed;
    char* end = nullptr;
    const unsigned long long device = strtoull(text, &end, 10);
    const unsigned long long inode =
        *end == ':' ? strtoull(end + 1, &end, 10) : 0;
    const std::string path = *end == ':' ? end + 1 : end;
    struct stat info {};
    if (stat(path.c_str(), &info) != 0 || info.st_dev != device ||
        info.st_ino != inode) {
      changed = path.empty() ? name : path;
    }
    unsetenv(name.c_str());
  }
}

int CheckLimited() {
  for (const char* path : {"/sys/fs/cgroup/memory.max",
                           "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::string text;
    if (!ReadFile(path, &text)) continue;
    // "max", or with cgroups v1 a number without meaning, mean none.
    const unsigned long long limit = strtoull(text.c_str(), nullptr, 10);
    return limit > 0 && limit < 1ULL << 60 ? 0 : kNotLimited;
  }
  return kNotLimited;
}

int RunInit(char** argv) {
  const int report = ReportFd();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  if (const std::string path = ChangedMount(); !path.empty()) {
    Complain(path + " was replaced while the container started");
    InitReport refusal;
    refusal.kind = InitReport::Kind::kNotStarted;
    refusal.value = ESTALE;
    refusal.SetProgram(path);
    Tell(report, refusal);
    return 126;
  }
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return 126;
  const pid_t program = fork();
  if (program < 0) return 126;
  if (program == 0) RunProgram(argv, fds[1]);
  close(fds[1]);
  int error = 0;
  InitReport first;
  if (read(fds[0], &error, sizeof(error)) == sizeof(error)) {
    Complain(ErrorText(std::string("running ") + argv[0], error));
    first.kind = InitReport::Kind::kNotStarted;
    first.value = error;
    first.SetProgram(argv[0]);
  }
  close(fds[0]);
  Tell(report, first);

  int wait_status = 0;
  while (!Reap(program, &wait_status)) {
    siginfo_t info{};
    const int signo = sigwaitinfo(&all, &info);
    if (signo > 0 && signo != SIGCHLD) kill(program, signo);
  }
  if (first.kind == InitReport::Kind::kStarted) {
    InitReport last;
    last.kind = InitReport::Kind::kEnded;
    last.value = wait_status;
    last.oom_kills = ReadOomKills();
    Tell(report, last);
  }
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status)
                                  : WEXITSTATUS(wait_status);
}

}  // namespace lockstep::worker::shim
