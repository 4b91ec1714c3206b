// An operation that a rank asks its group for. The numbers of the enums are
// those of lockstep.h, which is the contract.
#ifndef LOCKSTEP_WORKER_PROCESS_GROUP_OPERATION_H_
#define LOCKSTEP_WORKER_PROCESS_GROUP_OPERATION_H_

#include <cstdint>
#include <span>

#include "common/base/clock.h"

namespace lockstep::worker::process_group {

enum class Collective : int32_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier,
  kSend,
  kReceive,
};

enum class Type : int32_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBfloat16,
  kInt32,
  kInt64,
  kUint8,
  kInt8,
  kInt16,
  // One byte, 0 or 1.
  kBool,
};

enum class ReduceOp : int32_t { kSum, kMin, kMax, kMean, kProduct };

struct Span {
  void* data = nullptr;
  uint64_t count = 0;  // elements
};

// The lists are borrowed for the call that takes the operation only; the memory
// of the spans must stay until the operation has ended.
struct Operation {
  Collective collective = Collective::kAllReduce;
  Type type = Type::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  // Also the peer of a send or receive.
  int root = 0;
  uint32_t tag = 0;
  std::span<const Span> input = {};
  std::span<const Span> output = {};
  // Empty, or one number of elements for each rank; for kAllToAll.
  std::span<const uint64_t> input_splits = {};
  std::span<const uint64_t> output_splits = {};
  // 0 or less: the group's.
  Duration timeout = {};
  // Comes back from ProcessGroup::NextEnded. 0: it does not.
  uint64_t cookie = 0;
};

}  // namespace lockstep::worker::process_group

#endif  // LOCKSTEP_WORKER_PROCESS_GROUP_OPERATION_H_
