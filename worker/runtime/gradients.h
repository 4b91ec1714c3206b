// Where gradients lie, and whether they are numbers. PURE.
#ifndef LOCKSTEP_WORKER_RUNTIME_GRADIENTS_H_
#define LOCKSTEP_WORKER_RUNTIME_GRADIENTS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/bucket_plan.h"
#include "worker/runtime/reducer.h"

namespace lockstep {

// The plan of a reducer, the last parameter first, with room for the tail of
// `world_size` ranks. Its hash is compared between ranks.
StatusOr<BucketPlan> PlanGradients(const std::vector<Parameter>& parameters,
                                   size_t bucket_bytes, int world_size);

// True where no element is NaN or infinite.
bool AllFinite(std::span<const float> values);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_RUNTIME_GRADIENTS_H_
