// Which hosts a benchmark can have, and how its tasks come to one each. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_BENCH_HOSTS_H_
#define LOCKSTEP_CLIENT_CLI_BENCH_HOSTS_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "lockstep/v1/node.pb.h"

namespace lockstep {

struct BenchHosts {
  // Of each task: all cores of the smallest host that is needed, so that no
  // host takes two. 0: no host says how many it has.
  double cpus = 0;
  // A sentence where one may all the same; else empty.
  std::string note;
};

// Of `nodes` those that take work and are of `pool` (empty: any).
// FailedPrecondition, NEVER_FITS: fewer than `hosts`; names what is wrong with
// the others.
StatusOr<BenchHosts> ChooseBenchHosts(const std::vector<v1::Node>& nodes,
                                      int hosts, const std::string& pool);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_BENCH_HOSTS_H_
