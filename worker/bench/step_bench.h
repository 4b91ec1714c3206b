// Measures a synchronous training step through the reducer that trainers use.
// Runs the same work three times: on rank 0 alone, on all ranks without
// reductions, and with reductions.
#ifndef LOCKSTEP_WORKER_BENCH_STEP_BENCH_H_
#define LOCKSTEP_WORKER_BENCH_STEP_BENCH_H_

#include "common/base/status.h"
#include "worker/bench/options.h"
#include "worker/bench/step_report.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::bench {

// Call it on all ranks; only rank 0 gets the full result.
StatusOr<StepResults> BenchSteps(collective::Communicator* communicator,
                                 const BenchOptions& options);

}  // namespace lockstep::worker::bench

#endif  // LOCKSTEP_WORKER_BENCH_STEP_BENCH_H_
