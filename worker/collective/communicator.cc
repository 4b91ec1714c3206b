#include "worker/collective/communicator.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::worker::collective {
namespace {

// What is aligned to 64 bytes is a whole number of elements of any type from
// here.
constexpr uintptr_t kAnyBegin = 64;
// What a communicator has allocated by itself before it is handed out, and
// before gradients: handshakes, measuring.
constexpr size_t kMostFiller = size_t{1} << 30;
// Smaller than what is aligned to large pages.
constexpr size_t kFillerPiece = 1 << 20;

}  // namespace

size_t SizeOf(DataType type) {
  switch (type) {
    case DataType::kFloat64:
    case DataType::kInt64:
      return 8;
    case DataType::kFloat32:
    case DataType::kInt32:
      return 4;
    case DataType::kFloat16:
    case DataType::kBfloat16:
    case DataType::kInt16:
      return 2;
    case DataType::kUint8:
    case DataType::kInt8:
      return 1;
  }
  return 0;
}

std::string_view Name(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "float32";
    case DataType::kFloat64:
      return "float64";
    case DataType::kFloat16:
      return "float16";
    case DataType::kBfloat16:
      return "bfloat16";
    case DataType::kInt32:
      return "int32";
    case DataType::kInt64:
      return "int64";
    case DataType::kUint8:
      return "uint8";
    case DataType::kInt8:
      return "int8";
    case DataType::kInt16:
      return "int16";
  }
  return "unknown type";
}

std::string DescribePeer(const PeerWait& wait) {
  if (!wait.waiting) return "";
  return wait.rank < 0 ? "its peers" : fmt::format("rank {}", wait.rank);
}

std::string_view Name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all-reduce";
    case CollectiveKind::kReduceScatter:
      return "reduce-scatter";
    case CollectiveKind::kAllGather:
      return "all-gather";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kBarrier:
      return "barrier";
    case CollectiveKind::kAllToAll:
      return "all-to-all";
  }
  return "unknown operation";
}

std::string_view Name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMean:
      return "mean";
    case ReduceOp::kProduct:
      return "product";
  }
  return "unknown";
}

Status MemoryElsewhere() {
  return FailedPrecondition(
      "the memory of gradients is elsewhere in the new communicator, and the "
      "program knows the old addresses");
}

StatusOr<const Buffer*> Communicator::AllocateOnDevice(size_t) {
  return InvalidArgument("backend {} has no device memory", backend());
}

// Allocates until the place of `before` comes next, as in the communicator
// before: this one may have used less memory so far.
StatusOr<const Buffer*> Communicator::AllocateAgain(const Buffer& before) {
  const auto* const end = static_cast<const char*>(before.data);
  size_t bytes = 1;
  const char* next = nullptr;
  while (bytes > 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* const filler, Allocate(bytes));
    const auto* const data = static_cast<const char*>(filler->data);
    if (next != nullptr && data != next) break;
    next = data + filler->bytes;
    if (next > end || static_cast<size_t>(end - next) > kMostFiller) break;
    bytes = std::min(static_cast<size_t>(end - next), kFillerPiece);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* const buffer, Allocate(before.bytes));
  if (buffer->data == before.data) return buffer;
  return MemoryElsewhere();
}

StatusOr<const Buffer*> Communicator::Register(void*, size_t) {
  return Unimplemented("backend {} reduces only memory that it allocated",
                       backend());
}

StatusOr<const Buffer*> Communicator::AnyMemory() {
  return Unimplemented("backend {} reduces only memory that it knows",
                       backend());
}

Buffer AnyHostMemory() {
  // Not null: no offset may be added to that.
  return {.data = reinterpret_cast<void*>(kAnyBegin),
          .bytes = SIZE_MAX - kAnyBegin,
          .kind = MemoryKind::kHost};
}

Slice AnySlice(const Buffer* any, const void* data, size_t count,
               DataType type) {
  const size_t offset =
      count == 0 ? 0 : reinterpret_cast<uintptr_t>(data) - kAnyBegin;
  return {any, offset / SizeOf(type), count, type};
}

Status Communicator::Tune(Duration, MonoTime) { return OkStatus(); }

Status Communicator::FollowPlan(const std::string& plan, MonoTime) {
  if (plan == ReductionPlan()) return OkStatus();
  return InvalidArgument("backend {} uses the reduction plan \"{}\", not \"{}",
                         backend(), ReductionPlan(), plan);
}

Status Communicator::RunNow(const Operation& operation, MonoTime deadline) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Work> work, Start(operation));
  return work->Wait(deadline);
}

Status Run(Communicator* communicator, const Operation& operation,
           Duration timeout) {
  return communicator->RunNow(operation, MonotonicNow() + timeout);
}

}  // namespace lockstep::worker::collective
