// Checks and descriptions of operations, for every backend. Pure.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_OPERATION_H_
#define LOCKSTEP_WORKER_COLLECTIVE_OPERATION_H_

#include <functional>
#include <string>

#include "common/base/status.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::collective {

// InvalidArgument, naming what is wrong: a root outside [0, size), a slice
// that leaves its buffer, a misaligned one, a count that does not divide by
// `size`, of kAllToAll parts that are not one for each rank, or are misaligned.
// The caller has checked that the buffer is registered: it is read.
Status CheckOperation(const Operation& operation, int size);

// "all-reduce of 6553600 float32", "barrier", "all-to-all of up to 5 int8".
std::string Describe(const Operation& operation);

// Returns the words of an operation that passed CheckOperation. They leave out
// what has no meaning for its kind, the place of its slice, and the operation
// that it is a part of. The highest bit of `what` is free.
OperationWords WordsOf(const Operation& operation);

// The kinds of words: those of CollectiveKind, and what callers make of such
// operations, for Operation::part_of.
enum class WordsKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
};
// An operation that a caller makes of others. `of_bool`: its elements are
// bools, which are uint8 to the communicator. Its words leave out members that
// have no meaning for its kind.
struct ComposedOperation {
  WordsKind kind = WordsKind::kAllReduce;
  ReduceOp op = ReduceOp::kSum;
  DataType type = DataType::kFloat32;
  bool of_bool = false;
  int root = 0;
  uint64_t count = 0;
};
OperationWords WordsOf(const ComposedOperation& operation);

// "all-reduce (sum) of 5 float32", "broadcast of 4 int32 from rank 3",
// "barrier", "all-to-all of bool", "all-to-all of up to 5 int8"; for words of
// any kind.
std::string Describe(const OperationWords& words);

// The same of an operation and, where it is a stage, what it is a part of:
// "all-gather of 5 float32, part of all-reduce (sum) of 10 float32".
std::string Describe(const OperationWords& words,
                     const OperationWords& part_of);

// Of kAllToAll: InvalidArgument where `rank` sends more than the slice's count
// to the others, a part of another one is larger, or its own part is not of one
// size.
Status CheckCounts(const Operation& operation, int rank);
// Copies what `rank` sends to itself. False: stopped() returned true meanwhile;
// it is asked every few megabytes.
bool CopyOwnPart(const Operation& operation, int rank,
                 const std::function<bool()>& stopped);

// Bytes of the slice; 0 for a barrier.
size_t BytesOf(const Operation& operation);

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_OPERATION_H_
