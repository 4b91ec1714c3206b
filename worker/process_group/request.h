// An operation that was checked and copied. Pure.
#ifndef LOCKSTEP_WORKER_PROCESS_GROUP_REQUEST_H_
#define LOCKSTEP_WORKER_PROCESS_GROUP_REQUEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/operation.h"
#include "worker/process_group/operation.h"
#include "worker/process_group/span_list.h"

namespace lockstep::worker::process_group {

// Ranks and roots are inside the group, lists fit each other, and sizes are
// what the collective needs.
struct Request {
  Collective collective = Collective::kBarrier;
  // Of bools, uint8; `op` is then what has their result.
  collective::DataType type = collective::DataType::kUint8;
  collective::ReduceOp op = collective::ReduceOp::kSum;
  int root = 0;
  uint32_t tag = 0;
  SpanList input;
  SpanList output;
  // One number for each rank, of kAllToAll; else empty.
  std::vector<uint64_t> input_splits;
  std::vector<uint64_t> output_splits;
  Duration timeout = {};  // 0: the group's
  // The operation as the caller named it, the same on all ranks.
  collective::ComposedOperation named;

  size_t element() const { return SizeOf(type); }
  bool is_message() const {
    return collective == Collective::kSend ||
           collective == Collective::kReceive;
  }
  // Elements of a send's input or a receive's output.
  size_t message_count() const {
    return collective == Collective::kSend ? input.count() : output.count();
  }
};

// InvalidArgument, naming the operation and what is wrong.
StatusOr<Request> MakeRequest(const Operation& operation, int rank, int size);

// "all-reduce (sum) of 5 float32", "send of 4 int32 to rank 1 with tag 0".
std::string Describe(const Request& request);

// "5 float32", "4 bool".
std::string DescribeElements(uint64_t count, collective::DataType type,
                             bool of_bool);

}  // namespace lockstep::worker::process_group

#endif  // LOCKSTEP_WORKER_PROCESS_GROUP_REQUEST_H_
