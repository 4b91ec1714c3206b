// Element-wise reductions. Pure.
//
// Every function gives the same bits on every host, whatever instructions it
// uses, and for the same operands at every alignment:
//   - operands are taken in the order given: ((a0 op a1) op a2) ...
//   - 16-bit floats are widened to float32, accumulated there and rounded once
//     (to nearest even); infinity where they overflow, denormals kept.
//   - a NaN stays one. A sum and a product give the first NaN among their
//     operands, made quiet; min and max give NaN where any operand is, so that
//     a bad value is never hidden by the order of the ranks. For equal values
//     (+0, -0) min and max give the first.
//   - integer sums and products wrap around.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_REDUCE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_REDUCE_H_

#include <cstddef>
#include <string_view>

#include "worker/collective/communicator.h"
#include "worker/collective/reduce_sets.h"

namespace lockstep::worker::collective {

// out[i] = a[i] op b[i], where `out` may be `a` or `b`, and overlap neither
// else.
using ReduceFunction = void (*)(void* out, const void* a, const void* b,
                                size_t count);

// For kMean that of the sum, which is divided at the end. Null for 16-bit
// floats: a ring would round them at every hop.
ReduceFunction ReduceFunctionFor(DataType type, ReduceOp op);

// Makes the sum of `ranks` operands their mean. For float32 and float64.
void DivideForMean(DataType type, void* values, size_t count, int ranks);

enum class InstructionSet { kPlain, kAvx2, kAvx512 };
std::string_view Name(InstructionSet set);
// The widest that this program has and this processor can.
InstructionSet BestInstructionSet();

// Reduces any number of operands to any number of outputs (reduce_sets.h). Null
// for the mean of integers, and where this program or this processor lacks
// `set`.
ReduceAllFunction ReduceAllFunctionFor(DataType type, ReduceOp op,
                                       InstructionSet set);

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_REDUCE_H_
