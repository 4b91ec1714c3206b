// Combines operands of one reduction, also 16-bit ones, whose partial results
// are float32 and rounded once, to nearest even. Pure.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_COMBINE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_COMBINE_H_

#include <cstddef>

#include "worker/collective/communicator.h"
#include "worker/collective/reduce.h"

namespace lockstep::worker::collective::tcp {

// 16-bit floats as float32 and back. Denormals, infinities and NaN stay.
void Widen(DataType type, const void* from, float* to, size_t count);
void Narrow(DataType type, const float* from, void* to, size_t count);

class Combiner {
 public:
  // `ranks` are the operands of the whole reduction.
  Combiner(DataType type, ReduceOp op, int ranks);

  // out[i] = a[i] op b[i]; `out` may be `a` or `b`. `last`: no operand comes
  // after these, so a mean is divided now. 16-bit types: only where it is
  // both the first and the last.
  void Combine(void* out, const void* a, const void* b, size_t count,
               bool last) const;

  // For 16-bit types: all operands of the reduction, in this order. `out` may
  // be any of them.
  void CombineAll(void* out, const void* const* operands, size_t operand_count,
                  size_t count) const;

 private:
  const DataType type_;
  const ReduceOp op_;
  const int ranks_;
  // Null for 16-bit types.
  const ReduceFunction function_;
  const ReduceAllFunction all_;
};

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_COMBINE_H_
