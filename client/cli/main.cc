// lockstep: the command line client.
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "client/cli/cli.h"
#include "client/cli/environment.h"
#include "client/lib/client.h"
#include "common/base/leave.h"

namespace {

// Set by Ctrl-C once somebody asks for it.
volatile sig_atomic_t interrupted = 0;

// From the first question on, one Ctrl-C is an answer; the next one kills.
bool Interrupted() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGINT, &action, nullptr);
    return true;
  }();
  return installed && interrupted != 0;
}

std::string ProgramDir() {
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  const std::string self(path, size > 0 ? size : 0);
  return self.substr(
      0, self.rfind('/') == std::string::npos ? 0 : self.rfind('/'));
}

int Columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) {
    return 80;
  }
  return size.ws_col;
}

// Whether nobody reads our output any more, as behind `| head -1`.
bool ReaderIsGone() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0;
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::SilenceRpcLog();
  // A reader that went away is seen as a failed write.
  signal(SIGPIPE, SIG_IGN);
  const lockstep::SystemClock clock;
  lockstep::CliEnvironment env;
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
  int code =
      lockstep::RunCli(std::vector<std::string>(argv + 1, argv + argc), &env);
  std::cout.flush();
  if (!std::cout.good() && code == 0 && !ReaderIsGone()) {
    std::cerr << "lockstep: writing to stdout failed\n";
    code = lockstep::kExitError;
  }
  lockstep::LeaveProcess(code);
}
