// Says whether a rank is active: more than what background threads of an idle
// program use. Pure.
#ifndef LOCKSTEP_WORKER_AGENT_PROGRESS_ACTIVITY_H_
#define LOCKSTEP_WORKER_AGENT_PROGRESS_ACTIVITY_H_

#include <cstdint>
#include <optional>

#include "common/base/clock.h"

namespace lockstep::worker::agent {

// Totals of the rank's process tree, and the momentary use of its GPUs.
struct ActivitySample {
  double cpu_seconds = 0;
  // Read from and written to disks.
  uint64_t disk_bytes = 0;
  std::optional<double> gpu_utilization;
};

class ActivityMeter {
 public:
  // Two per cent of a shorter window are lost in the resolution of CPU time.
  static constexpr Duration kWindow = std::chrono::milliseconds(900);
  // Of one core, and of a GPU.
  static constexpr double kIdle = 0.02;
  // In a window.
  static constexpr uint64_t kIdleBytes = 64 << 10;

  // Returns whether the rank was active in the window that ends now. False
  // within a window.
  bool Take(const ActivitySample& sample, MonoTime now);

 private:
  std::optional<MonoTime> since_;
  ActivitySample before_;
  bool gpu_ = false;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_PROGRESS_ACTIVITY_H_
