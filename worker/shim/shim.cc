#include "worker/shim/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "worker/shim/process_tree.h"

namespace lockstep::worker::shim {
namespace {

using task::ExitKind;
using task::ShimReply;
using task::ShimRequest;

constexpr int64_t kLongestGrace = 86400 * kNanosPerSecond;

std::string ReadBootId() {
  std::string id;
  if (!ReadFile("/proc/sys/kernel/random/boot_id", &id)) return std::string();
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

// The daemon stops ranks through the socket. A stray signal must not end the
// shim: the rank would die with it, without an exit record.
void IgnoreSignals() {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  for (const int signo : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1,
                          SIGUSR2, SIGALRM, SIGXFSZ}) {
    sigaction(signo, &action, nullptr);
  }
  action.sa_handler = SIG_DFL;  // Ignored, it would make the kernel reap.
  sigaction(SIGCHLD, &action, nullptr);
}

}  // namespace

bool BecomeShim() {
  IgnoreSignals();
  // Fails only if this process already leads a session.
  setsid();
  umask(022);
  (void)!chdir("/");
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_SETMASK, &child, nullptr);
  return prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

Shim::Shim(task::ShimSpec spec, Launch launch)
    : spec_(std::move(spec)),
      server_(spec_.nonce,
              [this](const ShimRequest& request, std::vector<Fd> fds) {
                return OnRequest(request, std::move(fds));
              }),
      launch_(std::move(launch)),
      container_(spec_),
      sessions_(spec_),
      recorder_(spec_.exit_record_path) {
  record_.job = spec_.job;
  record_.generation = spec_.generation;
  record_.rank = spec_.rank;
  record_.boot_id = ReadBootId();
  record_.start_unix_nanos = WallNanos();
  record_.start_mono_nanos = MonoNanos();
  self_.pid = getpid();
  self_.start_time = StartTime(self_.pid);
}

int Shim::Run() {
  std::string error;
  int error_number = 0;
  if (!SetUp(&error, &error_number) || !StartRank(&error, &error_number)) {
    Complain(error);
    // The records of that path are the other one's.
    if (!server_.listening() && error_number == EADDRINUSE) return 3;
    NotStarted(error, error_number);
  }
  while (!Done()) Turn();
  if (server_.listening()) unlink(spec_.socket_path.c_str());
  return recorder_.durable() || ending_.forgotten ? 0 : 1;
}

bool Shim::SetUp(std::string* error, int* error_number) {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  if (BecomeShim()) {
    signals_.Reset(signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  if (!signals_) {
    *error_number = errno;
    *error = ErrorText("becoming the subreaper of a rank", errno);
    return false;
  }
  if (!fence_.Begin(spec_.fence_nanos)) {
    *error_number = errno;
    *error = ErrorText("making the timer of a rank's fence", errno);
    return false;
  }
  // First, for it refuses when a shim of the same rank is alive.
  if (!server_.Listen(spec_.socket_path, error, error_number)) return false;
  if (!output_.Open(spec_, error)) {
    *error_number = EIO;
    return false;
  }
  return true;
}

bool Shim::StartRank(std::string* error, int* error_number) {
  // An order may have waited on its way.
  if (fence_.Check(BootNanos()) != Fence::Due::kNothing) {
    record_.fenced = true;
    *error_number = ETIME;
    *error = task::kFencedMessage;
    return false;
  }
  if (!WriteTaskRecord(error, error_number)) return false;
  if (launch_.pid == 0 && !ForkRank(spec_, &launch_, error, error_number)) {
    return false;
  }
  record_.process.pid = launch_.pid;
  record_.process.start_time = StartTime(launch_.pid);
  output_.Attach(std::move(launch_.out), std::move(launch_.err),
                 container_.any());
  if (!WriteTaskRecord(error, error_number)) {
    // The child sees end of file and leaves; it is reaped like any other.
    Abandon(&launch_);
    record_.kind = ExitKind::kNotStarted;
    record_.message = *error;
    record_.start_errno = *error_number;
    Complain(*error);
    return true;
  }
  record_.start_unix_nanos = WallNanos();
  record_.start_mono_nanos = MonoNanos();
  if (!Release(spec_, &launch_)) {
    const int failed = errno;
    kill(launch_.pid, SIGKILL);
    record_.kind = ExitKind::kNotStarted;
    record_.message = ErrorText("letting the rank run", failed);
    record_.start_errno = failed;
    Complain(record_.message);
  }
  return true;
}

bool Shim::WriteTaskRecord(std::string* error, int* error_number) {
  task::TaskRecord record;
  record.job = spec_.job;
  record.generation = spec_.generation;
  record.rank = spec_.rank;
  record.boot_id = record_.boot_id;
  record.shim = self_;
  record.process = record_.process;
  record.nonce = spec_.nonce;
  record.socket_path = spec_.socket_path;
  record.log_path = spec_.log_path;
  record.exit_record_path = spec_.exit_record_path;
  record.page_path = spec_.page_path;
  record.cwd = spec_.cwd;
  record.ports = spec_.ports;
  record.started_unix_nanos = record_.start_unix_nanos;
  if (container_.any()) {
    record.engine = spec_.container.remove[0];
    record.container = spec_.container.name;
  }
  if (WriteRecord(spec_.task_record_path, task::EncodeTaskRecord(record))) {
    return true;
  }
  *error_number = errno;
  *error = ErrorText("writing the task record " + spec_.task_record_path,
                     *error_number);
  return false;
}

void Shim::Turn() {
  std::vector<pollfd> fds;
  // A negative descriptor is passed over by poll.
  fds.push_back({signals_.get(), POLLIN, 0});
  fds.push_back({launch_.status.get(), POLLIN, 0});
  fds.push_back({launch_.init.get(), POLLIN, 0});
  fds.push_back({container_.output_fd(), POLLIN, 0});
  fds.push_back({fence_.fd(), POLLIN, 0});
  const size_t output = fds.size();
  output_.AddFds(&fds);
  const size_t server = output + RankOutput::kFds;
  server_.AddFds(&fds);
  if (poll(fds.data(), fds.size(), PollTimeout(MonoNanos())) < 0) return;

  // Reads output before the end, so the log has the rank's last output first.
  output_.OnReady(&fds[output]);
  if (fds[1].revents != 0) OnStartStatus();
  if (fds[2].revents != 0) OnInitReport();
  if (fds[3].revents != 0) container_.OnOutput();
  if (fds[0].revents != 0) OnChild();
  if (fds[4].revents != 0) CheckFence();
  const int64_t now = MonoNanos();
  output_.FlushDue(now);
  server_.OnReady(&fds[server], fds.size() - server, now);
  KillWhatIsDue(now);
  if (phase_ == Phase::kEnding) GoOnEnding(now);
  if (phase_ == Phase::kExited) TryToRecord(now);
}

int Shim::PollTimeout(int64_t now) const {
  int64_t next = EarlierOf(server_.NextDeadline(), output_.NextDeadline());
  if (!rank_reaped_) {
    next = EarlierOf(next, kill_at_);
    next = EarlierOf(next, container_.signal().NextDeadline());
  }
  if (phase_ == Phase::kEnding) next = EarlierOf(next, now + kKillAgain);
  if (phase_ == Phase::kExited) {
    next = EarlierOf(next, recorder_.NextDeadline());
  }
  if (next < 0) return -1;
  // Rounded up, so that what is due is due when poll returns.
  const int64_t millis = (next - now + kNanosPerMilli - 1) / kNanosPerMilli;
  return static_cast<int>(std::clamp<int64_t>(millis, 0, 3'600'000));
}

void Shim::OnChild() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) > 0) {
  }
  for (;;) {
    int status = 0;
    rusage usage{};
    const pid_t pid = wait4(-1, &status, WNOHANG, &usage);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) ending_.tree_gone = rank_reaped_;  // ECHILD: none is left.
    if (pid <= 0) return;
    if (container_.OnChild(pid, status) || sessions_.OnChild(pid)) continue;
    AddUsage(usage);
    if (pid == launch_.pid && !rank_reaped_) {
      OnRankEnded(status);
    } else if (rank_reaped_ && WIFSIGNALED(status) &&
               WTERMSIG(status) == SIGKILL) {
      ++record_.tree_killed;
    }
  }
}

void Shim::OnStartStatus() {
  if (!launch_.status) return;
  StartFailure failure;
  switch (PollStart(spec_, &launch_, &failure)) {
    case StartResult::kPending:
      return;
    case StartResult::kRunning:
      // A child that never got permission to run also closes the pipe. For a
      // container with reports, this means that the engine's client runs.
      if (phase_ == Phase::kStarting && !spec_.container.reports &&
          record_.kind != ExitKind::kNotStarted) {
        EnterPhase(Phase::kRunning);
      }
      return;
    case StartResult::kFailed:
      record_.kind = ExitKind::kNotStarted;
      record_.start_errno = failure.error;
      record_.message = failure.message;
      return;
  }
}

void Shim::OnInitReport() {
  while (container_.TakeReport(&launch_.init)) {
    if (container_.started() && phase_ == Phase::kStarting) {
      record_.start_unix_nanos = WallNanos();
      record_.start_mono_nanos = MonoNanos();
      EnterPhase(Phase::kRunning);
    }
  }
}

void Shim::EnterPhase(Phase phase) {
  phase_ = phase;
  server_.Push(State(0));
}

ShimReply Shim::State(uint32_t id) const {
  ShimReply reply;
  reply.id = id;
  reply.phase = phase_;
  reply.shim = self_;
  reply.process = record_.process;
  if (phase_ == Phase::kExited) reply.exit_record = record_;
  reply.durable = recorder_.durable();
  return reply;
}

ShimReply Shim::Refuse(uint32_t id, const std::string& why) const {
  ShimReply reply = State(id);
  reply.kind = ShimReply::Kind::kRefused;
  reply.error = why;
  return reply;
}

ShimReply Shim::OnRequest(const ShimRequest& request, std::vector<Fd> fds) {
  switch (request.kind) {
    case ShimRequest::Kind::kHello:
    case ShimRequest::Kind::kState:
      break;
    case ShimRequest::Kind::kSignal:
      return OnSignal(request);
    case ShimRequest::Kind::kKillTree: {
      if (rank_reaped_) break;  // It is being killed, or gone.
      const int64_t grace = std::min(
          request.grace_nanos < 0 ? spec_.grace_nanos : request.grace_nanos,
          kLongestGrace);
      if (grace > 0) Terminate();
      const int64_t at = MonoNanos() + grace;
      if (kill_at_ < 0 || at < kill_at_) kill_at_ = at;
      break;
    }
    case ShimRequest::Kind::kFence:
      // A renewal that comes too late renews nothing.
      CheckFence();
      fence_.Renew(request.fence_nanos);
      break;
    case ShimRequest::Kind::kForget:
      if (phase_ != Phase::kExited) {
        return Refuse(request.id, "the rank has not ended yet");
      }
      ending_.forgotten = true;
      break;
    case ShimRequest::Kind::kSession: {
      if (phase_ != Phase::kRunning) {
        return Refuse(request.id, "the rank does not run");
      }
      std::string error;
      if (!sessions_.Start(request, std::move(fds), &error)) {
        return Refuse(request.id, error);
      }
      break;
    }
  }
  return State(request.id);
}

void Shim::Terminate() {
  if (container_.any()) {
    container_.signal().Send(SIGTERM);
  } else {
    SignalTree(SIGTERM, sessions_.Spared(MonoNanos()));
    // A stopped process handles SIGTERM once it is continued.
    SignalTree(SIGCONT, sessions_.Spared(MonoNanos()));
  }
}

ShimReply Shim::OnSignal(const ShimRequest& request) {
  if (rank_reaped_) return State(request.id);
  if (container_.any()) {
    container_.signal().Send(request.signo);
  } else if (request.whole_tree) {
    SignalTree(request.signo, sessions_.Spared(MonoNanos()));
  } else {
    SignalDescendant(launch_.pid, request.signo);
  }
  return State(request.id);
}

}  // namespace lockstep::worker::shim
