#include "worker/trainer/faults.h"

#include <csignal>
#include <thread>

namespace lockstep::worker::trainer {

Status Faults::BeforeStep(int64_t step) const {
  if (options_.allowed && options_.step_delay > Duration()) {
    std::this_thread::sleep_for(options_.step_delay);
  }
  if (!armed_) return OkStatus();
  if (step == options_.kill_at_step) std::raise(SIGKILL);
  if (step == options_.fail_at_step) {
    return Internal("step {} fails, as --fail-at-step asks", step);
  }
  return OkStatus();
}

}  // namespace lockstep::worker::trainer
