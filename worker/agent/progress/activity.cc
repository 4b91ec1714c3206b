#include "worker/agent/progress/activity.h"

namespace lockstep::worker::agent {

bool ActivityMeter::Take(const ActivitySample& sample, MonoTime now) {
  gpu_ = gpu_ || sample.gpu_utilization.value_or(0) > kIdle;
  if (!since_) {
    since_ = now;
    before_ = sample;
    return false;
  }
  const Duration window = now - *since_;
  if (window < kWindow) return false;
  const bool active =
      gpu_ ||
      sample.cpu_seconds - before_.cpu_seconds > kIdle * ToSeconds(window) ||
      sample.disk_bytes > before_.disk_bytes + kIdleBytes;
  since_ = now;
  before_ = sample;
  gpu_ = false;
  return active;
}

}  // namespace lockstep::worker::agent
