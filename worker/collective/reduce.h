// Element-wise reductions of two operands. Pure.
// out[i] = a[i] op b[i], where `out` may be `a`.
//
// min and max give NaN where either operand is NaN, so that a bad value is
// never hidden by the order of the ranks. Integer sums wrap around.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_REDUCE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_REDUCE_H_

#include <cstddef>

#include "worker/collective/communicator.h"

namespace lockstep {

using ReduceFunction = void (*)(void* out, const void* a, const void* b,
                                size_t count);

// Null for 16-bit floats: a ring would round them at every hop.
ReduceFunction ReduceFunctionFor(DataType type, ReduceOp op);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_REDUCE_H_
