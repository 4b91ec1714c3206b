#include "worker/shim/session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "worker/shim/launch.h"
#include "worker/shim/process_tree.h"
#include "worker/shim/session_report.h"

namespace lockstep::worker::shim {
namespace {

using task::ShimRequest;
using task::ShimSpec;

// Between SIGHUP and SIGKILL.
constexpr int64_t kHangUpGrace = 2 * kNanosPerSecond;
// Longer for an engine, whose keeper in the container does the same.
constexpr int64_t kEngineGrace = 4 * kNanosPerSecond;
constexpr int64_t kKillAgain = 10 * kNanosPerMilli;
// What keepers get to kill their commands after the rank's end.
constexpr int64_t kEndTime = kNanosPerSecond;

// Blocks what keepers handle, and ignores what terminals send.
bool TakeSignals(Fd* signals) {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  for (const int signo : {SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2,
                          SIGALRM, SIGTSTP, SIGTTIN, SIGTTOU, SIGXFSZ}) {
    sigaction(signo, &action, nullptr);
  }
  action.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &action, nullptr);
  sigset_t handled;
  sigemptyset(&handled);
  sigaddset(&handled, SIGCHLD);
  sigaddset(&handled, SIGTERM);
  sigprocmask(SIG_SETMASK, &handled, nullptr);
  signals->Reset(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  return static_cast<bool>(*signals);
}

// Keeps one command, to the end of all that it has started.
class Keeper {
 public:
  // `engine`: the command is an engine's client, whose own keeper in the
  // container reports and hears the daemon.
  Keeper(Fd control, bool engine)
      : control_(std::move(control)), engine_(engine) {}

  // Before the command is forked. Returns false and sets errno.
  bool SetUp() {
    return TakeSignals(&signals_) && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
  }
  int control() const { return control_.get(); }

  void NotStarted(int error, const std::string& message) {
    SessionReport report;
    report.kind = SessionReport::Kind::kNotStarted;
    report.value = error;
    report.SetMessage(message);
    Tell(report);
  }

  // `spec` is of the command, which waits in `launch`. Returns its wait status.
  int Run(const ShimSpec& spec, Launch* launch) {
    spec_ = &spec;
    launch_ = launch;
    Release(launch);
    while (!gone_) Turn();
    return wait_status_;
  }

 private:
  void Turn() {
    pollfd fds[] = {{signals_.get(), POLLIN, 0},
                    {launch_->status.get(), POLLIN, 0},
                    // An engine's keeper sees the end only.
                    {control_.get(), engine_ ? short{0} : short{POLLIN}, 0}};
    int timeout = -1;
    if (kill_at_ >= 0) {
      const int64_t left = std::max<int64_t>(kill_at_ - MonoNanos(), 0);
      timeout = static_cast<int>((left + kNanosPerMilli - 1) / kNanosPerMilli);
    }
    if (poll(fds, std::size(fds), timeout) < 0) return;
    if (fds[1].revents != 0) OnStatus();
    if (fds[0].revents != 0) OnSignals();
    if (fds[2].revents != 0) OnControl();
    if (kill_at_ >= 0 && MonoNanos() >= kill_at_) {
      SignalTree(SIGKILL);
      kill_at_ = MonoNanos() + kKillAgain;
    }
  }

  void OnStatus() {
    if (!launch_->status) return;
    StartFailure failure;
    switch (PollStart(*spec_, launch_, &failure)) {
      case StartResult::kPending:
        return;
      case StartResult::kFailed:
        told_end_ = true;
        return NotStarted(failure.error, failure.message);
      case StartResult::kRunning:
        if (!engine_) Tell(SessionReport());
    }
  }

  void OnSignals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof(info)) > 0) {
      if (info.ssi_signo != SIGTERM) continue;
      rank_ended_ = true;
      kill_at_ = MonoNanos();
    }
    for (;;) {
      int status = 0;
      const pid_t pid = waitpid(-1, &status, WNOHANG);
      if (pid < 0 && errno == EINTR) continue;
      if (pid < 0) gone_ = true;
      if (pid <= 0) return;
      if (pid == launch_->pid) OnEnded(status);
    }
  }

  void OnEnded(int status) {
    wait_status_ = status;
    OnStatus();
    if (!told_end_) {
      told_end_ = true;
      SessionReport report;
      report.kind = SessionReport::Kind::kEnded;
      report.value = status;
      if (rank_ended_) report.SetMessage(kRankEnded);
      Tell(report);
    }
    HangUp();
  }

  void OnControl() {
    if (!engine_) {
      SessionSignal order;
      const ssize_t n =
          recv(control_.get(), &order, sizeof(order), MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (n > 0) {
        if (n == static_cast<ssize_t>(sizeof(order))) {
          SignalDescendant(launch_->pid, order.signo);
        }
        return;
      }
    }
    control_.Reset();
    HangUp();
  }

  void HangUp() {
    if (!engine_) {
      SignalTree(SIGHUP);
      SignalTree(SIGCONT);
    }
    const int64_t at = MonoNanos() + (engine_ ? kEngineGrace : kHangUpGrace);
    if (kill_at_ < 0 || at < kill_at_) kill_at_ = at;
  }

  void Tell(const SessionReport& report) {
    if (!control_) return;
    (void)!send(control_.get(), &report, sizeof(report),
                MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  Fd control_;
  const bool engine_;
  Fd signals_;
  const ShimSpec* spec_ = nullptr;
  Launch* launch_ = nullptr;
  bool told_end_ = false;
  bool rank_ended_ = false;
  int wait_status_ = 0;
  int64_t kill_at_ = -1;  // MonoNanos.
  bool gone_ = false;
};

// The rank's, with the variables of `more` instead of those of the same name.
std::vector<std::string> Merged(const std::vector<std::string>& env,
                                const std::vector<std::string>& more) {
  std::vector<std::string> merged = more;
  for (const std::string& variable : env) {
    const std::string_view name =
        std::string_view(variable).substr(0, variable.find('=') + 1);
    if (std::none_of(more.begin(), more.end(), [&](const std::string& other) {
          return other.starts_with(name);
        })) {
      merged.push_back(variable);
    }
  }
  return merged;
}

// Leaves this process nothing of the shim's but `fds`, which get the numbers
// from 3 on.
bool KeepOnly(std::vector<Fd>* fds) {
  constexpr int kHigh = 64;
  for (Fd& fd : *fds) {
    Fd high(fcntl(fd.get(), F_DUPFD_CLOEXEC, kHigh));
    if (!high) return false;
    fd = std::move(high);
  }
  const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int fd = 0; fd < 3; ++fd) {
    if (dup2(null.get(), fd) < 0) return false;
  }
  int number = 3;
  for (Fd& fd : *fds) {
    if (dup3(fd.get(), number, O_CLOEXEC) < 0) return false;
    fd.Reset();
    fd = Fd(number++);
  }
  return close_range(static_cast<unsigned>(number), ~0u, 0) == 0;
}

[[noreturn]] void RunKeeper(ShimSpec spec, const ShimRequest& request,
                            std::vector<Fd> fds, pid_t shim, pid_t daemon) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != shim ||
      setsid() < 0 || !KeepOnly(&fds)) {
    _exit(1);
  }
  spec.argv = request.argv;
  spec.env = Merged(spec.env, request.env);
  Keeper keeper(std::move(fds[3]), request.in_container);
  Launch launch;
  std::string error;
  int error_number = 0;
  const CommandIo io = {fds[0].get(),
                        fds[1].get(),
                        fds[2].get(),
                        request.terminal,
                        request.in_container ? keeper.control() : -1,
                        daemon};
  if (!keeper.SetUp() ||
      !ForkCommand(spec, io, &launch, &error, &error_number)) {
    keeper.NotStarted(
        error_number != 0 ? error_number : errno,
        error.empty() ? "the session could not be set up" : error);
    _exit(1);
  }
  for (Fd& fd : fds) fd.Reset();  // The command's alone.
  keeper.Run(spec, &launch);
  _exit(0);
}

[[noreturn]] void RunContainerCommand(char** argv, int go, int failed) {
  DefaultSignals();
  char byte = 0;
  if (read(go, &byte, 1) != 1) _exit(126);
  setsid();
  // The keeper has given it up.
  if (isatty(0) != 0) (void)ioctl(0, TIOCSCTTY, 0);
  execvp(argv[0], argv);
  ReportExecFailure(failed, errno);
}

}  // namespace

bool Sessions::Start(const ShimRequest& request, std::vector<Fd> fds,
                     std::string* error) {
  if (fds.size() != task::kSessionFds) {
    *error = "the request for a session has no descriptors";
    return false;
  }
  if (keepers_.size() >= kMost) {
    *error = "the rank has " + std::to_string(kMost) +
             " sessions, which is the limit";
    return false;
  }
  const pid_t shim = getpid();
  const pid_t daemon = getppid();
  const pid_t pid = fork();
  if (pid < 0) {
    *error = ErrorText("forking a session", errno);
    return false;
  }
  if (pid == 0) RunKeeper(spec_, request, std::move(fds), shim, daemon);
  keepers_.push_back(pid);
  return true;
}

bool Sessions::OnChild(pid_t pid) { return std::erase(keepers_, pid) > 0; }

void Sessions::End() {
  spare_until_ = MonoNanos() + kEndTime;
  // Children that are not reaped yet, so the numbers are theirs.
  for (const pid_t keeper : keepers_) kill(keeper, SIGTERM);
}

std::vector<pid_t> Sessions::Spared(int64_t now) const {
  if (spare_until_ >= 0 && now >= spare_until_) return {};
  return keepers_;
}

int RunContainerSession(char** argv) {
  if (argv[0] == nullptr) return 126;
  fcntl(kSessionControlFd, F_SETFD, FD_CLOEXEC);
  Keeper keeper{Fd(kSessionControlFd), false};
  ShimSpec spec;
  spec.argv = {argv[0]};
  Launch launch;
  Fd go, failed;
  if (!keeper.SetUp() || !MakePipe(&go, &launch.go) ||
      !MakePipe(&launch.status, &failed)) {
    keeper.NotStarted(errno, ErrorText("setting up a session", errno));
    return 126;
  }
  fcntl(launch.status.get(), F_SETFL, O_NONBLOCK);
  // A leader that leaves its terminal, for the command to take.
  if (isatty(0) != 0) (void)ioctl(0, TIOCNOTTY);
  launch.pid = fork();
  if (launch.pid < 0) {
    keeper.NotStarted(errno, ErrorText("forking a session", errno));
    return 126;
  }
  if (launch.pid == 0) {
    launch.go.Reset();
    RunContainerCommand(argv, go.get(), failed.get());
  }
  failed.Reset();
  const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int fd = 0; fd < 3; ++fd) (void)!dup2(null.get(), fd);
  const int status = keeper.Run(spec, &launch);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace lockstep::worker::shim
