// Which reduction a reducer has, and of which options: gradients on the host or
// a device, all ranks always there or not, over nccl or not.
#ifndef LOCKSTEP_WORKER_RUNTIME_MAKE_REDUCTION_H_
#define LOCKSTEP_WORKER_RUNTIME_MAKE_REDUCTION_H_

#include <memory>
#include <vector>

#include "common/base/status.h"
#include "worker/runtime/gradient_reduction.h"
#include "worker/runtime/stepped_reducer.h"

namespace lockstep::worker::runtime {

// Checks what was asked for, and fills in what is left open: the order, the
// members and the sizes of buckets. InvalidArgument.
Status CompleteOptions(SteppedReducerOptions* options);

// REQUIRES: options of CompleteOptions.
StatusOr<std::unique_ptr<GradientReduction>> MakeReduction(
    const std::vector<Parameter>& parameters,
    const SteppedReducerOptions& options);

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_MAKE_REDUCTION_H_
