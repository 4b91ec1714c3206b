// Errors as the C interface has them: a code, and a sentence in a
// lockstep_error.
#ifndef LOCKSTEP_SDK_MPI_FAIL_H_
#define LOCKSTEP_SDK_MPI_FAIL_H_

#include <chrono>
#include <cstdint>

#include "lockstep/lockstep.h"

namespace lockstep::mpi {

using Deadline = std::chrono::steady_clock::time_point;

// Writes the sentence to `error`, cut to its size, and returns `code`.
__attribute__((format(printf, 3, 4))) int32_t Fail(lockstep_error* error,
                                                   int32_t code,
                                                   const char* format, ...);

// As Fail, with "WHAT: " and the sentence of an errno.
int32_t FailErrno(lockstep_error* error, int number, const char* what);

}  // namespace lockstep::mpi

#endif  // LOCKSTEP_SDK_MPI_FAIL_H_
