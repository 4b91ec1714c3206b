// All that was asked for, measured by one rank.
#ifndef LOCKSTEP_WORKER_BENCH_BENCH_RUN_H_
#define LOCKSTEP_WORKER_BENCH_BENCH_RUN_H_

#include "common/base/status.h"
#include "worker/bench/options.h"
#include "worker/collective/communicator.h"

namespace lockstep {

// On all ranks alike. Rank 0 writes to stdout and to the JSON file. *wrong:
// whether some rank had wrong data, known on all of them.
Status RunBench(const BenchOptions& options, Communicator* communicator,
                bool* wrong);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_BENCH_BENCH_RUN_H_
