// All that was asked for, measured by one rank.
#ifndef LOCKSTEP_WORKER_BENCH_BENCH_RUN_H_
#define LOCKSTEP_WORKER_BENCH_BENCH_RUN_H_

#include "common/base/status.h"
#include "worker/bench/options.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::bench {

// Call it on all ranks. Rank 0 writes to stdout and to the JSON file. Sets
// *wrong on all ranks if any rank had wrong data.
Status RunBench(const BenchOptions& options,
                collective::Communicator* communicator, bool* wrong);

}  // namespace lockstep::worker::bench

#endif  // LOCKSTEP_WORKER_BENCH_BENCH_RUN_H_
