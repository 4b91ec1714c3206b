// Whether somebody else used the machine while a benchmark ran.
#ifndef LOCKSTEP_TESTS_BENCH_MACHINE_LOAD_H_
#define LOCKSTEP_TESTS_BENCH_MACHINE_LOAD_H_

#include <sys/types.h>

#include <vector>

namespace lockstep {

struct CpuReading {
  double total = 0;   // seconds of all cores
  double busy = 0;    // not idle, not stolen
  double stolen = 0;  // by the hypervisor
  double own = 0;     // of this process, its children that have ended, and
                      // those that were named
  double kernel = 0;  // of the kernel's threads, which work for whoever asks
};
// `running`: children that go on meanwhile.
CpuReading ReadCpu(const std::vector<pid_t>& running = {});

struct CpuShares {
  double foreign = 0;  // of all cores, 0 to 1
  double stolen = 0;
};
// Between two readings. Children that were not named must have ended before the
// second one. Pure.
CpuShares SharesBetween(const CpuReading& before, const CpuReading& after);

// Above 3 % of others or 1 % stolen.
bool IsBusy(const CpuShares& shares);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_MACHINE_LOAD_H_
