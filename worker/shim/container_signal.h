// Signals to a container, by commands of its engine.
#ifndef LOCKSTEP_WORKER_SHIM_CONTAINER_SIGNAL_H_
#define LOCKSTEP_WORKER_SHIM_CONTAINER_SIGNAL_H_

#include <cstdint>

#include "worker/shim/helper.h"
#include "worker/task/shim_spec.h"

namespace lockstep::worker::shim {

// A signal is tried again until the engine took it: the container may not be
// there yet. A later one replaces it.
class ContainerSignal {
 public:
  // Both outlive it.
  ContainerSignal(const task::ShimSpec& spec, Helper* helper)
      : spec_(spec), helper_(helper) {}

  void Send(int signo);
  void SendIfDue(int64_t now);
  // SIGKILL is due: asks the engine first. Returns true when the shim's own
  // process tree may be killed: the engine has failed or has had its time.
  bool MayKillTree(int64_t now);
  // The helper has ended.
  void OnHelperEnded();
  // When SendIfDue is to be called; -1: never.
  int64_t NextDeadline() const;

 private:
  const task::ShimSpec& spec_;
  Helper* const helper_;
  int signal_ = 0;  // To be sent.
  int sending_ = 0;
  int64_t next_try_ = 0;
  int64_t kill_due_ = -1;
  bool kill_failed_ = false;
};

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_CONTAINER_SIGNAL_H_
