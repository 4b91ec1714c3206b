// Chooses the hosts of a benchmark and spreads its tasks one per host. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_BENCH_HOSTS_H_
#define LOCKSTEP_CLIENT_CLI_BENCH_HOSTS_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "lockstep/v1/node.pb.h"

namespace lockstep::cli {

struct BenchHosts {
  // For each task: all cores of the smallest host in use, so that no host takes
  // two tasks. 0 if no host reports its cores.
  double cpus = 0;
  // A note if a host may get two tasks anyway, or empty.
  std::string note;
};

// Chooses from the ready nodes of `pool` (empty for any). FailedPrecondition,
// NEVER_FITS: fewer than `hosts`; names the faults of the others.
StatusOr<BenchHosts> ChooseBenchHosts(const std::vector<v1::Node>& nodes,
                                      int hosts, const std::string& pool);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_BENCH_HOSTS_H_
