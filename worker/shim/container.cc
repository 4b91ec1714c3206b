#include "worker/shim/container.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include <algorithm>

#include "worker/task/engine_words.h"

namespace lockstep::worker::shim {
namespace {

using task::ExitKind;

constexpr int64_t kInspectTime = 5 * kNanosPerSecond;
constexpr int64_t kRemoveTime = 10 * kNanosPerSecond;
constexpr int64_t kRemoveAgain = 200 * kNanosPerMilli;
constexpr int kMostRemovals = 3;
constexpr int64_t kSettleTime = kNanosPerSecond;

// Exit codes of an engine's client: for its own failure, for a program that
// cannot be executed, and for a missing program (podman-run(1), docker-run(1)).
constexpr int kEngineFailed = 125;
constexpr int kNotExecutable = 126;
constexpr int kNoProgram = 127;

void NotStarted(int error, const std::string& why, task::ExitRecord* record) {
  record->kind = ExitKind::kNotStarted;
  record->start_errno = error;
  record->message = why;
}

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

bool ContainerKeeper::OnChild(pid_t pid, int wait_status) {
  if (!helper_.OnChild(pid, wait_status)) return false;
  signal_.OnHelperEnded();
  return true;
}

void ContainerKeeper::OnClientEnded(int* wait_status, const std::string& said,
                                    task::ExitRecord* record) {
  if (!any() || record->kind == ExitKind::kNotStarted) return;
  said_ = task::EngineSentence(said);
  record->oom_kills = report_.oom_kills;
  if (report_.ended) {
    *wait_status = report_.wait_status;
    return;
  }
  if (report_.start_error == ESTALE) {
    return NotStarted(ESTALE,
                      "the directory " + report_.program +
                          " was replaced while the container started",
                      record);
  }
  if (report_.start_error != 0) {
    return NotStarted(
        report_.start_error,
        report_.start_error == ENOENT
            ? "program " + report_.program + " is not in the image"
            : ErrorText("running " + report_.program + " in the image",
                        report_.start_error),
        record);
  }
  // It was killed on request: its processes end with the container.
  if (WIFSIGNALED(*wait_status)) return;
  const int code = WEXITSTATUS(*wait_status);
  const bool never_ran =
      spec_.container.reports ? !report_.started : code == kEngineFailed;
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
      (code == kNotExecutable || code == kNoProgram) && !report_.started) {
    return NotStarted(code == kNoProgram ? ENOENT : EACCES,
                      "the container engine says: " + said_, record);
  }
  if (const std::string program = task::ProgramNotRun(said_);
      !program.empty() && (code == kNotExecutable || code == kNoProgram)) {
    return NotStarted(
        code == kNoProgram ? ENOENT : EACCES,
        code == kNoProgram
            ? "program " + program + " is not in the image"
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

}  // namespace lockstep::worker::shim
