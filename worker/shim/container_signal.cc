#include "worker/shim/container_signal.h"

#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "worker/shim/io.h"

namespace lockstep::worker::shim {
namespace {

constexpr int64_t kSignalTime = 2 * kNanosPerSecond;
constexpr int64_t kSignalAgain = 100 * kNanosPerMilli;
// Time for the engine to kill, before the shim kills its own tree.
constexpr int64_t kKillTime = kNanosPerSecond;

}  // namespace

void ContainerSignal::Send(int signo) {
  // A kill that is due is not taken back.
  if (kill_due_ >= 0) return;
  signal_ = signo;
  next_try_ = 0;
  SendIfDue(MonoNanos());
}

void ContainerSignal::SendIfDue(int64_t now) {
  helper_->KillIfLate(now);
  if (signal_ == 0 || now < next_try_) return;
  if (helper_->running()) {
    // One that hangs does not keep the kill.
    if (signal_ == SIGKILL && sending_ != SIGKILL) helper_->Kill();
    return;
  }
  std::vector<std::string> argv = spec_.container.signal;
  std::replace(argv.begin(), argv.end(), std::string("%"),
               std::to_string(signal_));
  sending_ = signal_;
  next_try_ = now + kSignalAgain;
  if (!helper_->Start(argv, spec_.env, now + kSignalTime)) {
    kill_failed_ = signal_ == SIGKILL;
  }
}

bool ContainerSignal::MayKillTree(int64_t now) {
  if (kill_due_ < 0) {
    kill_due_ = now;
    signal_ = SIGKILL;
    next_try_ = 0;
    SendIfDue(now);
  }
  return kill_failed_ || now - kill_due_ >= kKillTime;
}

void ContainerSignal::OnHelperEnded() {
  if (sending_ == 0) return;
  if (helper_->ok()) {
    if (signal_ == sending_) signal_ = 0;
  } else if (sending_ == SIGKILL) {
    // The container does not exist yet, or no longer.
    kill_failed_ = true;
  }
  sending_ = 0;
}

int64_t ContainerSignal::NextDeadline() const {
  const int64_t late = helper_->running() ? helper_->deadline() : -1;
  if (signal_ == 0) return late;
  return EarlierOf(late, std::max(next_try_, MonoNanos() + kNanosPerMilli));
}

}  // namespace lockstep::worker::shim
