// The resources of this machine, and each worker daemon's share.
#ifndef LOCKSTEP_CLIENT_LOCAL_MACHINE_H_
#define LOCKSTEP_CLIENT_LOCAL_MACHINE_H_

#include <cstdint>
#include <vector>

#include "common/base/status.h"

namespace lockstep::cli {

struct LocalMachine {
  double cpus = 0;
  int64_t memory_bytes = 0;
  int gpus = 0;
};

// Reads the CPUs that this process may run on, MemTotal, and the NVIDIA GPUs in
// /proc (none without a driver).
StatusOr<LocalMachine> ReadMachine();

struct Share {
  double cpus = 0;
  int64_t memory_bytes = 0;
  // Indices of the machine's GPUs.
  std::vector<int> gpus;

  bool operator==(const Share&) const = default;
};

// Pure. Divides whole cores and GPUs; the first workers get the remainder. With
// fewer cores than workers the shares are equal fractions. REQUIRES: workers >
// 0.
std::vector<Share> Divide(const LocalMachine& machine, int workers);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LOCAL_MACHINE_H_
