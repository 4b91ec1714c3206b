// Measures collectives of one communicator, on all its ranks.
#ifndef LOCKSTEP_WORKER_BENCH_COLLECTIVE_BENCH_H_
#define LOCKSTEP_WORKER_BENCH_COLLECTIVE_BENCH_H_

#include <functional>
#include <vector>

#include "common/base/status.h"
#include "worker/bench/options.h"
#include "worker/bench/table.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::bench {

// Runs every size, type and op of every requested collective. Passes each
// combination that the backend does not support to `skip` as a sentence, and
// each result to `row` immediately, on all ranks. Wrong data is not an error.
Status BenchCollectives(collective::Communicator* communicator,
                        const BenchOptions& options,
                        const std::function<void(const BenchRow&)>& row,
                        const std::function<void(const std::string&)>& skip);

// The largest of all ranks' `value`, which is not negative.
StatusOr<double> LargestOf(collective::Communicator* communicator,
                           const collective::Buffer* scratch, double value,
                           Duration timeout);
// The sum of all ranks' `value`.
StatusOr<int64_t> SumOf(collective::Communicator* communicator,
                        const collective::Buffer* scratch, int64_t value,
                        Duration timeout);
// Each of the first `count` float64 becomes the largest of all ranks'. None is
// negative or NaN.
Status LargestOfEach(collective::Communicator* communicator,
                     const collective::Buffer* values, size_t count,
                     Duration timeout);

}  // namespace lockstep::worker::bench

#endif  // LOCKSTEP_WORKER_BENCH_COLLECTIVE_BENCH_H_
