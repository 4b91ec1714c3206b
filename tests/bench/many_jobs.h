// Many small jobs, from the first submission until the last one's final state
// is durable.
#ifndef LOCKSTEP_TESTS_BENCH_MANY_JOBS_H_
#define LOCKSTEP_TESTS_BENCH_MANY_JOBS_H_

#include <functional>
#include <string>

#include "tests/bench/bench_cluster.h"

namespace lockstep {

// Four connections submit the jobs PREFIX0, PREFIX1, ... by `submit`; final
// states are read from a watch, whose versions are the store's commits.
// Returns seconds; an error unless all of them have SUCCEEDED.
StatusOr<double> RunManyJobs(
    BenchCluster* bench, const std::string& prefix, int count,
    const std::function<Status(Client*, const std::string& name)>& submit);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_MANY_JOBS_H_
