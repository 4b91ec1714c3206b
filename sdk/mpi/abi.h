// The binary interface of MPItrampoline, version 2: through it JAX's
// collectives for CPUs call a library of MPI. The library exports each constant
// and each function of it as MPIABI_NAME; a constant is a variable of eight
// bytes.
#ifndef LOCKSTEP_SDK_MPI_ABI_H_
#define LOCKSTEP_SDK_MPI_ABI_H_

#include <cstddef>
#include <cstdint>

namespace lockstep::mpi {

// Objects and predefined constants: addresses or numbers of this library.
using Handle = uintptr_t;

// The library's values of the constants. They differ from each other, unless
// constants.inc says more.
enum Constant : int64_t {
  kFirstConstant = 1 << 16,
#define ORDINAL(name) k##name,
#include "sdk/mpi/constants.inc"
#undef ORDINAL
};

enum ConstantWithValue : int64_t {
#define VALUE(name, value) k##name = value,
#include "sdk/mpi/constants.inc"
#undef VALUE
};

constexpr size_t kMaxErrorString = 1024;
constexpr size_t kMaxLibraryVersion = 8192;

struct Status {
  uint64_t of_the_library[3];
  int source;
  int tag;
  int error;
};
static_assert(sizeof(Status) == 40);

}  // namespace lockstep::mpi

// Before the definition of a variable or function that is exported.
#define LOCKSTEP_MPI_EXPORT extern "C" __attribute__((visibility("default")))

#endif  // LOCKSTEP_SDK_MPI_ABI_H_
