// A line's latency and rate, by all-reduces of two ranks on this host.
#ifndef LOCKSTEP_TESTS_BENCH_MODEL_MEASURE_H_
#define LOCKSTEP_TESTS_BENCH_MODEL_MEASURE_H_

#include <string>

#include "common/base/status.h"
#include "tests/bench/model/model.h"
#include "worker/collective/communicator.h"

namespace lockstep::model {

// The median of `times` all-reduces of `bytes` (of float32), after some that
// do not count. All ranks call it.
StatusOr<double> MedianAllReduce(Communicator* communicator, size_t bytes,
                                 int times);

// Forks two processes that reduce over `backend`, some seconds at most.
StatusOr<Link> MeasureLink(const std::string& backend);

}  // namespace lockstep::model

#endif  // LOCKSTEP_TESTS_BENCH_MODEL_MEASURE_H_
