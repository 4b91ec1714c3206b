// Types and reductions of MPI as lockstep has them.
#ifndef LOCKSTEP_SDK_MPI_TYPES_H_
#define LOCKSTEP_SDK_MPI_TYPES_H_

#include <cstdint>

#include "lockstep/lockstep.h"
#include "sdk/mpi/abi.h"

namespace lockstep::mpi {

struct Type {
  int32_t type = 0;  // lockstep_type
  uint32_t bytes = 0;
  // Elements of `type` in one of MPI's: 2 for complex numbers.
  uint32_t parts = 1;
  // Of the size of `type`, which is signed: sums and products have the same
  // bits, but the order is another one.
  bool is_unsigned = false;
};

// UNIMPLEMENTED: none of JAX's types.
int32_t ToType(Handle handle, Type* type, lockstep_error* error);

// *reduce_op: of lockstep_reduce_op. UNIMPLEMENTED: it is not a reduction that
// JAX uses, or not one of this type.
int32_t ToReduceOp(Handle handle, const Type& type, int32_t* reduce_op,
                   lockstep_error* error);

// Whether the numbers must be mapped to signed ones of the same order and back.
bool NeedsOrder(const Type& type, int32_t reduce_op);
// Does that: adds half of the range to each of the `bytes`. Both may be equal.
void MapOrder(const Type& type, const void* from, void* to, uint64_t bytes);

}  // namespace lockstep::mpi

#endif  // LOCKSTEP_SDK_MPI_TYPES_H_
