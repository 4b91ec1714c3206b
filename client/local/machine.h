// What this machine has, and each worker daemon's share of it.
#ifndef LOCKSTEP_CLIENT_LOCAL_MACHINE_H_
#define LOCKSTEP_CLIENT_LOCAL_MACHINE_H_

#include <cstdint>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

struct LocalMachine {
  double cpus = 0;
  int64_t memory_bytes = 0;
  int gpus = 0;
};

// CPUs this process may run on, MemTotal, and NVIDIA GPUs that the driver
// shows in /proc (none without a driver).
StatusOr<LocalMachine> ReadMachine();

struct Share {
  double cpus = 0;
  int64_t memory_bytes = 0;
  // Indices of the machine's GPUs.
  std::vector<int> gpus;

  bool operator==(const Share&) const = default;
};

// Pure. Whole cores and GPUs, what is left over to the first ones; equal
// fractions where there are fewer cores than workers. REQUIRES: workers > 0.
std::vector<Share> Divide(const LocalMachine& machine, int workers);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_LOCAL_MACHINE_H_
