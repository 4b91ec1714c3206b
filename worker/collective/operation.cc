#include "worker/collective/operation.h"

namespace lockstep {
namespace {

bool IsInteger(DataType type) {
  return type == DataType::kInt32 || type == DataType::kInt64 ||
         type == DataType::kUint8;
}

}  // namespace

size_t BytesOf(const Operation& operation) {
  if (operation.kind == CollectiveKind::kBarrier) return 0;
  return operation.slice.count * SizeOf(operation.slice.type);
}

std::string Describe(const Operation& operation) {
  if (operation.kind == CollectiveKind::kBarrier) return "barrier";
  return fmt::format("{} of {} {}", Name(operation.kind), operation.slice.count,
                     Name(operation.slice.type));
}

Status CheckOperation(const Operation& operation, int size) {
  switch (operation.kind) {
    case CollectiveKind::kBarrier:
      return OkStatus();
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kBroadcast:
      break;
    default:
      return InvalidArgument("operation {} is unknown",
                             static_cast<int>(operation.kind));
  }
  const Slice& slice = operation.slice;
  const size_t element = SizeOf(slice.type);
  if (element == 0) {
    return InvalidArgument("{}: element type {} is unknown",
                           Name(operation.kind), static_cast<int>(slice.type));
  }
  if (slice.buffer == nullptr) {
    return InvalidArgument("{} has no buffer", Describe(operation));
  }
  // In elements, so that nothing overflows.
  const size_t room = slice.buffer->bytes / element;
  if (slice.offset > room || slice.count > room - slice.offset) {
    return InvalidArgument(
        "{} from element {} leaves its buffer of {} bytes ({} elements)",
        Describe(operation), slice.offset, slice.buffer->bytes, room);
  }
  const bool reduces = operation.kind == CollectiveKind::kAllReduce ||
                       operation.kind == CollectiveKind::kReduceScatter;
  if (reduces && operation.op == ReduceOp::kMean && IsInteger(slice.type)) {
    return InvalidArgument("{}: only floats have a mean", Describe(operation));
  }
  const bool in_parts = operation.kind == CollectiveKind::kReduceScatter ||
                        operation.kind == CollectiveKind::kAllGather;
  if (in_parts && slice.count % size != 0) {
    return InvalidArgument("{}: the count does not divide by {} ranks",
                           Describe(operation), size);
  }
  if (operation.kind == CollectiveKind::kBroadcast &&
      (operation.root < 0 || operation.root >= size)) {
    return InvalidArgument("{}: root {} is none of the {} ranks",
                           Describe(operation), operation.root, size);
  }
  return OkStatus();
}

}  // namespace lockstep
