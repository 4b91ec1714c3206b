// All that was asked for, measured by one rank; and its parts. Call each
// function on all ranks.
#ifndef LOCKSTEP_WORKER_BENCH_BENCH_RUN_H_
#define LOCKSTEP_WORKER_BENCH_BENCH_RUN_H_

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/bench/options.h"
#include "worker/bench/step_report.h"
#include "worker/bench/table.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::bench {

// Rank 0 writes to stdout and to the JSON file. Sets *wrong on all ranks if any
// rank had wrong data.
Status RunBench(const BenchOptions& options,
                collective::Communicator* communicator, bool* wrong);

// Runs every size, type and op of every requested collective. Passes each
// combination that the backend does not support to `skip` as a sentence, and
// each result to `row` immediately, on all ranks. Wrong data is not an error.
Status BenchCollectives(collective::Communicator* communicator,
                        const BenchOptions& options,
                        const std::function<void(const BenchRow&)>& row,
                        const std::function<void(const std::string&)>& skip);

// Measures a synchronous training step through the reducer that trainers use.
// Runs the same work three times: on rank 0 alone, on all ranks without
// reductions, and with reductions. Only rank 0 gets the full result.
StatusOr<StepResults> BenchSteps(collective::Communicator* communicator,
                                 const BenchOptions& options);

// Until all ranks have come here.
Status Barrier(collective::Communicator* communicator, Duration timeout);

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

// Every rank's `own`, by rank; a value of whole words, which bytes can copy.
template <typename Value>
StatusOr<std::vector<Value>> GatherFromAll(
    collective::Communicator* communicator, const Value& own,
    Duration timeout) {
  static_assert(sizeof(Value) % sizeof(int64_t) == 0);
  std::vector<Value> values(communicator->size());
  const size_t bytes = values.size() * sizeof(Value);
  LOCKSTEP_ASSIGN_OR_RETURN(const collective::Buffer* all,
                            communicator->Allocate(bytes));
  values[communicator->rank()] = own;
  std::memcpy(all->data, values.data(), bytes);
  LOCKSTEP_RETURN_IF_ERROR(Run(communicator,
                               {.kind = collective::CollectiveKind::kAllGather,
                                .slice = {all, 0, bytes / sizeof(int64_t),
                                          collective::DataType::kInt64}},
                               timeout));
  std::memcpy(values.data(), all->data, bytes);
  return values;
}

}  // namespace lockstep::worker::bench

#endif  // LOCKSTEP_WORKER_BENCH_BENCH_RUN_H_
