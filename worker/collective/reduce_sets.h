// The loops of each instruction set. Callers go through reduce.h, which knows
// what the processor has.
//
// Includes nothing that has inline functions: see reduce_loops.h.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_REDUCE_SETS_H_
#define LOCKSTEP_WORKER_COLLECTIVE_REDUCE_SETS_H_

#include <cstddef>

namespace lockstep::worker::collective {

// outs[j][i] = ins[0][i] op ... op ins[in_count - 1][i], for all j; a mean is
// divided by in_count. An output may be one of the inputs, else they must not
// overlap. in_count and out_count are 1 or more.
using ReduceAllFunction = void (*)(void* const* outs, size_t out_count,
                                   const void* const* ins, size_t in_count,
                                   size_t count);

// By DataType and ReduceOp. Null for the mean of integers.
struct ReduceTable {
  static constexpr size_t kTypes = 9;
  static constexpr size_t kOps = 5;
  ReduceAllFunction of[kTypes][kOps];
};

extern const ReduceTable kPlainReductions;
// On x86-64 only.
extern const ReduceTable kAvx2Reductions;
extern const ReduceTable kAvx512Reductions;

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_REDUCE_SETS_H_
