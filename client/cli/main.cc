// lockstep: the command line client.
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "client/cli/cli.h"
#include "client/cli/environment.h"
#include "client/lib/client.h"
#include "common/base/leave.h"

namespace {

// Signals since a command first asked for them, and the first of them.
std::atomic<int> signals_seen{0};
std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);
std::atomic<bool> holds_signals{false};

void Catch(unsigned flags) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    // Keeps nohup's disposition.
    if (signal == SIGHUP && before.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = [](int number) {
      int none = 0;
      first_signal.compare_exchange_strong(none, number);
      ++signals_seen;
    };
    action.sa_flags = static_cast<int>(flags);
    sigaction(signal, &action, nullptr);
  }
}

// From the first call on, one signal of a kind is reported; the next one kills.
bool Interrupted() {
  static const bool installed = [] {
    if (!holds_signals) Catch(SA_RESETHAND);
    return true;
  }();
  return installed && signals_seen > 0;
}

// From the first call on, no signal kills.
int Signals() {
  static const bool installed = [] {
    holds_signals = true;
    Catch(SA_RESTART);
    return true;
  }();
  return installed ? signals_seen.load() : 0;
}

std::string ProgramDir() {
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  const std::string self(path, size > 0 ? size : 0);
  return self.substr(
      0, self.rfind('/') == std::string::npos ? 0 : self.rfind('/'));
}

int Columns() {
  for (const int fd : {STDERR_FILENO, STDOUT_FILENO}) {
    winsize size{};
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) {
      return size.ws_col;
    }
  }
  return 80;
}

// True if the reader of our output is gone, as after `| head -1`.
bool ReaderIsGone() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0;
}

// The shell's exit code for SIGPIPE.
constexpr int kExitPipe = 128 + SIGPIPE;

void EndWithReader() {
  static const bool watched = [] {
    struct stat info {};
    // Terminals send SIGHUP, and files never close.
    if (fstat(STDOUT_FILENO, &info) != 0 ||
        !(S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode))) {
      return false;
    }
    std::thread([] {
      pollfd out{STDOUT_FILENO, 0, 0};
      do {
        if (poll(&out, 1, -1) < 0 && errno != EINTR) return;
      } while ((out.revents & (POLLERR | POLLHUP)) == 0);
      // Exits at once, because other threads may be running.
      _exit(kExitPipe);
    }).detach();
    return true;
  }();
  (void)watched;
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::cli::SilenceRpcLog();
  // A closed pipe shows as a failed write.
  signal(SIGPIPE, SIG_IGN);
  const lockstep::SystemClock clock;
  lockstep::cli::CliEnvironment env;
  env.out = &std::cout;
  env.err = &std::cerr;
  env.in = &std::cin;
  env.out_is_tty = isatty(STDOUT_FILENO);
  env.err_is_tty = isatty(STDERR_FILENO);
  env.in_is_tty = isatty(STDIN_FILENO);
  env.columns = Columns();
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    env.variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  env.program_dir = ProgramDir();
  char cwd[PATH_MAX];
  env.working_directory = getcwd(cwd, sizeof(cwd)) ? cwd : "/";
  env.system_config = "/etc/lockstep/config.yaml";
  env.clock = &clock;
  env.interrupted = Interrupted;
  env.signals = Signals;
  env.end_with_reader = EndWithReader;
  int code = lockstep::cli::RunCli(
      std::vector<std::string>(argv + 1, argv + argc), &env);
  // Commands return the code of SIGINT for any interruption.
  if (code == lockstep::cli::kExitInterrupted && first_signal > 0) {
    code = 128 + first_signal;
  }
  std::cout.flush();
  if (!std::cout.good()) {
    if (ReaderIsGone()) {
      code = kExitPipe;
    } else if (code == 0) {
      std::cerr << "lockstep: writing to stdout failed\n";
      code = lockstep::cli::kExitError;
    }
  }
  lockstep::LeaveProcess(code);
}
