// Runs AgentCore on the event loop: passes it events and time, and executes its
// decisions.
//
// Belongs to the event loop's thread.
#ifndef LOCKSTEP_WORKER_AGENT_LOOP_CORE_RUNNER_H_
#define LOCKSTEP_WORKER_AGENT_LOOP_CORE_RUNNER_H_

#include <cstdint>
#include <functional>

#include "worker/agent/core/agent_core.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"

namespace lockstep::worker::agent {

class CoreRunner {
 public:
  using Event = std::function<void(AgentCore* core, Actions* out)>;

  // `loop` is borrowed. `execute` executes the core's decisions; it may call
  // Tell, which then executes nested decisions first.
  CoreRunner(AgentOptions options, EventLoop* loop,
             std::function<void(const Actions& actions)> execute);

  const AgentCore& core() const { return core_; }
  // Returns null for an unknown gang.
  const LocalGang* Find(const GangKey& key) const { return core_.Find(key); }

  // Passes an event to the core and executes its decisions.
  void Tell(const Event& event);
  // Events without decisions.
  void Adopt(const Assignment& assignment, GangStatus status) {
    core_.Adopt(assignment, std::move(status));
  }
  void ForgetEpoch() { core_.ForgetEpoch(); }

 private:
  void SetTimer();

  EventLoop* const loop_;
  const std::function<void(const Actions&)> execute_;
  AgentCore core_;
  uint64_t timer_ = 0;
  Lifetime lifetime_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_LOOP_CORE_RUNNER_H_
