#include "client/local/machine.h"

#include <errno.h>
#include <sched.h>

#include <cmath>

#include "common/base/file.h"
#include "common/os/procfs.h"

namespace lockstep::cli {

StatusOr<LocalMachine> ReadMachine() {
  LocalMachine machine;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) {
    return ErrnoStatus(errno, "reading the CPUs of this process");
  }
  machine.cpus = CPU_COUNT(&cpus);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text,
                            ReadProcFile("/proc/meminfo"));
  LOCKSTEP_ASSIGN_OR_RETURN(const MemoryInfo memory, ParseMemoryInfo(text));
  machine.memory_bytes = static_cast<int64_t>(memory.total);
  const auto gpus = RealFileSystem()->List("/proc/driver/nvidia/gpus");
  if (gpus.ok()) machine.gpus = static_cast<int>(gpus->size());
  return machine;
}

std::vector<Share> Divide(const LocalMachine& machine, int workers) {
  std::vector<Share> shares(workers);
  int next_gpu = 0;
  for (int i = 0; i < workers; ++i) {
    // The first `whole % workers` workers get one more.
    const auto part = [&](int whole) {
      return whole / workers + (i < whole % workers ? 1 : 0);
    };
    const double exact = machine.cpus / workers;
    shares[i].cpus = exact >= 1 ? part(static_cast<int>(machine.cpus))
                                : std::floor(exact * 100) / 100;
    shares[i].memory_bytes = machine.memory_bytes / workers;
    for (int n = part(machine.gpus); n > 0; --n) {
      shares[i].gpus.push_back(next_gpu++);
    }
  }
  return shares;
}

}  // namespace lockstep::cli
