// What the interface reads besides functions.
#include "sdk/mpi/abi.h"

namespace lockstep::mpi {

#define VALUE(name, value)                         \
  LOCKSTEP_MPI_EXPORT const int64_t MPIABI_##name; \
  const int64_t MPIABI_##name = value;
#define ORDINAL(name)                              \
  LOCKSTEP_MPI_EXPORT const int64_t MPIABI_##name; \
  const int64_t MPIABI_##name = k##name;
#include "sdk/mpi/constants.inc"
#undef VALUE
#undef ORDINAL

#define NUMBER(name, value)           \
  LOCKSTEP_MPI_EXPORT const int name; \
  const int name = value;
// A library of a later version serves programs of an earlier one.
NUMBER(mpiabi_version_major, 2)
NUMBER(mpiabi_version_minor, 10)
NUMBER(mpiabi_version_patch, 0)
NUMBER(mpiwrapper_version_major, LOCKSTEP_VERSION_MAJOR)
NUMBER(mpiwrapper_version_minor, LOCKSTEP_VERSION_MINOR)
NUMBER(mpiwrapper_version_patch, LOCKSTEP_VERSION_PATCH)
#undef NUMBER

// There are no constants of Fortran.
LOCKSTEP_MPI_EXPORT void mpiwrapper_export_fortran_constants_() {}

}  // namespace lockstep::mpi
