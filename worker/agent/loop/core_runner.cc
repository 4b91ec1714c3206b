#include "worker/agent/loop/core_runner.h"

#include <utility>

namespace lockstep::worker::agent {

CoreRunner::CoreRunner(AgentOptions options, EventLoop* loop,
                       std::function<void(const Actions&)> execute)
    : loop_(loop), execute_(std::move(execute)), core_(std::move(options)) {}

void CoreRunner::Tell(const Event& event) {
  Actions actions;
  event(&core_, &actions);
  execute_(actions);
  SetTimer();
}

void CoreRunner::SetTimer() {
  if (timer_ != 0) loop_->CancelTimer(timer_);
  timer_ = 0;
  const auto deadline = core_.NextDeadline();
  if (!deadline) return;
  timer_ = loop_->At(*deadline, lifetime_.Guard([this] {
    timer_ = 0;
    Tell([this](AgentCore* core, Actions* out) {
      core->OnTick(loop_->Now(), out);
    });
  }));
}

}  // namespace lockstep::worker::agent
