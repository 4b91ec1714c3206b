#include "worker/shim/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::worker::shim {
namespace {

constexpr size_t kMaxOutput = 4096;

[[noreturn]] void RunChild(char* const* argv, char* const* env, int output,
                           pid_t shim) {
  DefaultSignals();
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != shim) _exit(126);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (dup2(null, 0) < 0 || dup2(output, 1) < 0 || dup2(null, 2) < 0) {
    _exit(126);
  }
  // Ports, the lock and the rank's pipes are not for it.
  close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
  execve(argv[0], argv, env);
  _exit(126);
}

}  // namespace

bool Helper::Start(const std::vector<std::string>& argv,
                   const std::vector<std::string>& env, int64_t deadline) {
  ok_ = false;
  output_.clear();
  deadline_ = deadline;
  int fds[2];
  if (argv.empty() || pipe2(fds, O_CLOEXEC) != 0) return false;
  output_fd_.Reset(fds[0]);
  const Fd write_end(fds[1]);
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  const std::vector<char*> argv_pointers = Pointers(argv);
  const std::vector<char*> env_pointers = Pointers(env);
  const pid_t shim = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    RunChild(argv_pointers.data(), env_pointers.data(), write_end.get(), shim);
  }
  if (pid < 0) {
    output_fd_.Reset();
    return false;
  }
  pid_ = pid;
  return true;
}

bool Helper::OnChild(pid_t pid, int wait_status) {
  if (pid_ <= 0 || pid != pid_) return false;
  pid_ = 0;
  ok_ = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
  OnOutput();
  output_fd_.Reset();
  return true;
}

void Helper::KillIfLate(int64_t now) {
  if (running() && now >= deadline_) Kill();
}

void Helper::Kill() {
  // Not yet waited for, so its number is its own.
  if (running()) kill(pid_, SIGKILL);
}

void Helper::OnOutput() {
  char buffer[1024];
  while (output_fd_) {
    const ssize_t n = read(output_fd_.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return output_fd_.Reset();
    if (output_.size() < kMaxOutput) {
      output_.append(buffer, static_cast<size_t>(n));
    }
  }
}

}  // namespace lockstep::worker::shim
