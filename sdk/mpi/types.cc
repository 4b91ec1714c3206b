#include "sdk/mpi/types.h"

#include "sdk/mpi/fail.h"

namespace lockstep::mpi {
namespace {

template <typename Integer>
void FlipTopBit(const void* from, void* to, uint64_t bytes) {
  constexpr auto kTop =
      static_cast<Integer>(Integer{1} << (8 * sizeof(Integer) - 1));
  const auto* in = static_cast<const Integer*>(from);
  auto* out = static_cast<Integer*>(to);
  for (uint64_t i = 0; i < bytes / sizeof(Integer); ++i) {
    out[i] = static_cast<Integer>(in[i] ^ kTop);
  }
}

}  // namespace

int32_t ToType(Handle handle, Type* type, lockstep_error* error) {
  switch (static_cast<int64_t>(handle)) {
    case kINT8_T:
      *type = {LOCKSTEP_INT8, 1};
      return LOCKSTEP_OK;
    case kUINT8_T:
    case kBYTE:
      *type = {LOCKSTEP_UINT8, 1};
      return LOCKSTEP_OK;
    case kINT16_T:
    case kUINT16_T:
      *type = {LOCKSTEP_INT16, 2, 1, handle == kUINT16_T};
      return LOCKSTEP_OK;
    case kINT32_T:
    case kUINT32_T:
      *type = {LOCKSTEP_INT32, 4, 1, handle == kUINT32_T};
      return LOCKSTEP_OK;
    case kINT64_T:
    case kUINT64_T:
      *type = {LOCKSTEP_INT64, 8, 1, handle == kUINT64_T};
      return LOCKSTEP_OK;
    case kFLOAT:
    case kC_COMPLEX:
      *type = {LOCKSTEP_FLOAT32, 4, handle == kFLOAT ? 1U : 2U};
      return LOCKSTEP_OK;
    case kDOUBLE:
    case kC_DOUBLE_COMPLEX:
      *type = {LOCKSTEP_FLOAT64, 8, handle == kDOUBLE ? 1U : 2U};
      return LOCKSTEP_OK;
    default:
      return Fail(
          error, LOCKSTEP_UNIMPLEMENTED,
          "lockstep has the types of MPI that JAX uses, and this is not "
          "one of them");
  }
}

int32_t ToReduceOp(Handle handle, const Type& type, int32_t* reduce_op,
                   lockstep_error* error) {
  const bool complex = type.parts > 1;
  switch (static_cast<int64_t>(handle)) {
    case kSUM:
      *reduce_op = LOCKSTEP_SUM;
      return LOCKSTEP_OK;
    case kPROD:
      *reduce_op = LOCKSTEP_PRODUCT;
      break;
    case kMIN:
      *reduce_op = LOCKSTEP_MIN;
      break;
    case kMAX:
      *reduce_op = LOCKSTEP_MAX;
      break;
    default:
      return Fail(error, LOCKSTEP_UNIMPLEMENTED,
                  "lockstep reduces by MPI_SUM, MPI_PROD, MPI_MIN and MPI_MAX");
  }
  if (!complex) return LOCKSTEP_OK;
  return Fail(error, LOCKSTEP_UNIMPLEMENTED,
              "lockstep reduces complex numbers by their sum only");
}

bool NeedsOrder(const Type& type, int32_t reduce_op) {
  return type.is_unsigned &&
         (reduce_op == LOCKSTEP_MIN || reduce_op == LOCKSTEP_MAX);
}

void MapOrder(const Type& type, const void* from, void* to, uint64_t bytes) {
  switch (type.bytes) {
    case sizeof(uint16_t):
      return FlipTopBit<uint16_t>(from, to, bytes);
    case sizeof(uint32_t):
      return FlipTopBit<uint32_t>(from, to, bytes);
    default:
      return FlipTopBit<uint64_t>(from, to, bytes);
  }
}

}  // namespace lockstep::mpi
