// What every backend checks and says about an operation. Pure.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_OPERATION_H_
#define LOCKSTEP_WORKER_COLLECTIVE_OPERATION_H_

#include <string>

#include "common/base/status.h"
#include "worker/collective/communicator.h"

namespace lockstep {

// InvalidArgument, naming what is wrong: a root outside [0, size), a slice
// that leaves its buffer, a misaligned one, a count that does not divide by
// `size`. That the buffer is registered is the caller's check: it is read.
Status CheckOperation(const Operation& operation, int size);

// "all-reduce of 6553600 float32", "barrier".
std::string Describe(const Operation& operation);

// Bytes of the slice; 0 for a barrier.
size_t BytesOf(const Operation& operation);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_OPERATION_H_
