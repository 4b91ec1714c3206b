#include "worker/shim/container.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "worker/shim/init_report.h"
#include "worker/task/engine_words.h"

namespace lockstep::shim {
namespace {

using task::ExitKind;

constexpr int64_t kSignalTime = 2 * kNanosPerSecond;
constexpr int64_t kSignalAgain = 100 * kNanosPerMilli;
// How long an engine that was told to kill may take before our own tree is.
constexpr int64_t kKillTime = kNanosPerSecond;
constexpr int64_t kInspectTime = 5 * kNanosPerSecond;
constexpr int64_t kRemoveTime = 10 * kNanosPerSecond;
constexpr int64_t kRemoveAgain = 200 * kNanosPerMilli;
constexpr int kMostRemovals = 3;
constexpr int64_t kSettleTime = kNanosPerSecond;

// What the client of an engine exits with for a failure of its own, for a
// program that cannot be run, and for one that is not there (podman-run(1),
// docker-run(1)).
constexpr int kEngineFailed = 125;
constexpr int kNotExecutable = 126;
constexpr int kNoProgram = 127;

}  // namespace

int WaitStatusOf(int code) {
  for (const int signo :
       {SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE,
        SIGKILL, SIGUSR1, SIGSEGV, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM, SIGXCPU,
        SIGXFSZ, SIGSYS}) {
    if (code == 128 + signo) return signo;
  }
  return (code & 0xff) << 8;
}

bool ContainerKeeper::TakeReport(Fd* pipe) {
  if (!*pipe) return false;
  InitReport report;
  const ssize_t n = read(pipe->get(), &report, sizeof(report));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n != sizeof(report) || !report.Valid()) {
    pipe->Reset();  // Nobody writes any more, or not what we know.
    return false;
  }
  switch (report.kind) {
    case InitReport::Kind::kStarted:
      started_ = true;
      break;
    case InitReport::Kind::kNotStarted:
      start_error_ = std::max(report.value, 1);
      program_ = report.program;
      break;
    case InitReport::Kind::kEnded:
      ended_ = started_;
      wait_status_ = report.value;
      oom_kills_ = report.oom_kills;
      break;
  }
  return true;
}

void ContainerKeeper::Signal(int signo) {
  // A kill that is due is not taken back.
  if (kill_due_ >= 0) return;
  signal_ = signo;
  next_signal_try_ = 0;
  SignalIfDue(MonoNanos());
}

void ContainerKeeper::SignalIfDue(int64_t now) {
  helper_.KillIfLate(now);
  if (signal_ == 0 || now < next_signal_try_) return;
  if (helper_.running()) {
    // One that hangs does not keep the kill.
    if (signal_ == SIGKILL && sending_ != SIGKILL) helper_.Kill();
    return;
  }
  std::vector<std::string> argv = spec_.container.signal;
  std::replace(argv.begin(), argv.end(), std::string("%"),
               std::to_string(signal_));
  sending_ = signal_;
  next_signal_try_ = now + kSignalAgain;
  if (!helper_.Start(argv, spec_.env, now + kSignalTime)) {
    kill_failed_ = signal_ == SIGKILL;
  }
}

bool ContainerKeeper::MayKillTree(int64_t now) {
  if (!any()) return true;
  if (kill_due_ < 0) {
    kill_due_ = now;
    signal_ = SIGKILL;
    next_signal_try_ = 0;
    SignalIfDue(now);
  }
  return kill_failed_ || now - kill_due_ >= kKillTime;
}

int64_t ContainerKeeper::NextDeadline() const {
  int64_t next = -1;
  const auto consider = [&](int64_t at) {
    if (next < 0 || at < next) next = at;
  };
  if (helper_.running()) consider(helper_.deadline());
  if (signal_ != 0)
    consider(std::max(next_signal_try_, MonoNanos() + kNanosPerMilli));
  return next;
}

bool ContainerKeeper::OnChild(pid_t pid, int wait_status) {
  if (!helper_.OnChild(pid, wait_status)) return false;
  if (sending_ == 0) return true;
  if (helper_.ok()) {
    if (signal_ == sending_) signal_ = 0;
  } else if (sending_ == SIGKILL) {
    // There is no such container: not yet, or not any more.
    kill_failed_ = true;
  }
  sending_ = 0;
  return true;
}

void ContainerKeeper::NotStarted(int error, const std::string& why,
                                 task::ExitRecord* record) {
  record->kind = ExitKind::kNotStarted;
  record->start_errno = error;
  record->message = why;
}

void ContainerKeeper::OnClientEnded(int* wait_status, const std::string& said,
                                    task::ExitRecord* record) {
  if (!any() || record->kind == ExitKind::kNotStarted) return;
  said_ = EngineSentence(said);
  record->oom_kills = oom_kills_;
  if (ended_) {
    *wait_status = wait_status_;
    return;
  }
  if (start_error_ == ESTALE) {
    return NotStarted(ESTALE,
                      "the directory " + program_ +
                          " was replaced while the container started",
                      record);
  }
  if (start_error_ != 0) {
    return NotStarted(
        start_error_,
        start_error_ == ENOENT
            ? "there is no program " + program_ + " in the image"
            : ErrorText("running " + program_ + " in the image", start_error_),
        record);
  }
  // Killed, as we were told to: what was in it goes with the container.
  if (WIFSIGNALED(*wait_status)) return;
  const int code = WEXITSTATUS(*wait_status);
  const bool never_ran =
      spec_.container.reports ? !started_ : code == kEngineFailed;
  if (never_ran && code >= kEngineFailed && code <= kNoProgram) {
    return NotStarted(code == kNoProgram ? ENOENT : EIO,
                      "the container engine says: " + said_, record);
  }
  inspect_ = true;
  *wait_status = WaitStatusOf(code);
}

void ContainerKeeper::TakeInspection(task::ExitRecord* record) {
  char status[32] = {};
  char oom[8] = {};
  int code = 0;
  if (!helper_.ok() || sscanf(helper_.output().c_str(), "%31s %d %7s", status,
                              &code, oom) != 3) {
    return;
  }
  if (std::string_view(status) == "created" &&
      (code == kNotExecutable || code == kNoProgram) && !started_) {
    return NotStarted(code == kNoProgram ? ENOENT : EACCES,
                      "the container engine says: " + said_, record);
  }
  if (const std::string program = ProgramNotRun(said_);
      !program.empty() && (code == kNotExecutable || code == kNoProgram)) {
    return NotStarted(
        code == kNoProgram ? ENOENT : EACCES,
        code == kNoProgram
            ? "there is no program " + program + " in the image"
            : "the program " + program + " of the image cannot be executed",
        record);
  }
  if (std::string_view(oom) == "true") {
    record->oom_kills = std::max(record->oom_kills, 1u);
  }
}

void ContainerKeeper::StartRemoval(int64_t now) {
  step_ = Step::kRemove;
  ++removals_;
  next_removal_ = now + kRemoveAgain;
  (void)helper_.Start(spec_.container.remove, spec_.env, now + kRemoveTime);
}

bool ContainerKeeper::GoOnEnding(int64_t now, bool no_child,
                                 task::ExitRecord* record) {
  if (!any() || step_ == Step::kGone) return true;
  helper_.KillIfLate(now);
  if (helper_.running()) {
    if (step_ == Step::kBegin) helper_.Kill();  // A signal that came too late.
    return false;
  }
  switch (step_) {
    case Step::kBegin:
      if (!inspect_) {
        StartRemoval(now);
        return false;
      }
      step_ = Step::kInspect;
      (void)helper_.Start(spec_.container.inspect, spec_.env,
                          now + kInspectTime);
      return false;
    case Step::kInspect:
      TakeInspection(record);
      StartRemoval(now);
      return false;
    case Step::kRemove:
      if (!helper_.ok() && removals_ < kMostRemovals) {
        if (now >= next_removal_) StartRemoval(now);
        return false;
      }
      if (!helper_.ok()) {
        ++record->tree_left;
        Complain("the container " + spec_.container.name +
                 " could not be removed");
      }
      settle_until_ = now + kSettleTime;
      step_ = Step::kSettle;
      return false;
    case Step::kSettle:
      if (!no_child && now < settle_until_) return false;
      step_ = Step::kGone;
      return true;
    case Step::kGone:
      break;
  }
  return true;
}

}  // namespace lockstep::shim
