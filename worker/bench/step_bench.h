// What a synchronous training step takes, through the reducer that trainers
// use: three times the same work, first on rank 0 alone, then on all ranks side
// by side, then with the gradients reduced.
#ifndef LOCKSTEP_WORKER_BENCH_STEP_BENCH_H_
#define LOCKSTEP_WORKER_BENCH_STEP_BENCH_H_

#include "common/base/status.h"
#include "worker/bench/options.h"
#include "worker/bench/step_report.h"
#include "worker/collective/communicator.h"

namespace lockstep {

// All ranks alike; the result is whole on rank 0.
StatusOr<StepResults> BenchSteps(Communicator* communicator,
                                 const BenchOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_BENCH_STEP_BENCH_H_
