#include "worker/collective/operation.h"

namespace lockstep::worker::collective {
namespace {

bool IsInteger(DataType type) {
  return type == DataType::kInt32 || type == DataType::kInt64 ||
         type == DataType::kUint8;
}

bool Reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce ||
         kind == CollectiveKind::kReduceScatter;
}

// Of OperationWords::what: the kind, from 1, below; root above.
constexpr int kOpShift = 8;
constexpr int kTypeShift = 16;
constexpr int kRootShift = 32;

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

OperationWords WordsOf(const Operation& operation) {
  OperationWords words{.what = 1 + static_cast<uint64_t>(operation.kind)};
  if (operation.kind == CollectiveKind::kBarrier) return words;
  if (Reduces(operation.kind)) {
    words.what |= static_cast<uint64_t>(operation.op) << kOpShift;
  }
  words.what |= static_cast<uint64_t>(operation.slice.type) << kTypeShift;
  if (operation.kind == CollectiveKind::kBroadcast) {
    words.what |= static_cast<uint64_t>(operation.root) << kRootShift;
  }
  words.count = operation.slice.count;
  return words;
}

std::string Describe(const OperationWords& words) {
  const uint64_t number = words.what & 0xff;
  if (number == 0 ||
      number > 1 + static_cast<uint64_t>(CollectiveKind::kBarrier)) {
    return "an unknown operation";
  }
  const auto kind = static_cast<CollectiveKind>(number - 1);
  std::string text(Name(kind));
  if (kind == CollectiveKind::kBarrier) return text;
  if (Reduces(kind)) {
    const auto op = static_cast<ReduceOp>(words.what >> kOpShift & 0xff);
    text += fmt::format(" ({})", Name(op));
  }
  const auto type = static_cast<DataType>(words.what >> kTypeShift & 0xff);
  text += fmt::format(" of {} {}", words.count, Name(type));
  if (kind == CollectiveKind::kBroadcast) {
    text += fmt::format(" from rank {}", words.what >> kRootShift & 0x7fffffff);
  }
  return text;
}

std::string Describe(const OperationWords& words,
                     const OperationWords& part_of) {
  if (part_of == OperationWords()) return Describe(words);
  return Describe(words) + ", part of " + Describe(part_of);
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
  if (Reduces(operation.kind) && operation.op == ReduceOp::kMean &&
      IsInteger(slice.type)) {
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
    return InvalidArgument("{}: root {} is out of range for {} ranks",
                           Describe(operation), operation.root, size);
  }
  return OkStatus();
}

}  // namespace lockstep::worker::collective
