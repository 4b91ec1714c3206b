#include "worker/collective/shm/started.h"

#include <fmt/format.h>

namespace lockstep::shm {
namespace {

// Below kPrivate; a root of at most 128 ranks leaves this room.
constexpr uint32_t kTagMask = 0x7fffffff;
constexpr int kTagShift = 32;

std::string_view NameOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMean:
      return "mean";
  }
  return "unknown";
}

}  // namespace

Started Started::Of(const Operation& operation) {
  Started started;
  started.what = static_cast<uint64_t>(operation.kind) |
                 static_cast<uint64_t>(operation.tag & kTagMask) << kTagShift;
  if (operation.kind == CollectiveKind::kBarrier) return started;
  if (operation.kind == CollectiveKind::kAllReduce ||
      operation.kind == CollectiveKind::kReduceScatter) {
    started.what |= static_cast<uint64_t>(operation.op) << 8;
  }
  started.what |= static_cast<uint64_t>(operation.slice.type) << 16;
  if (operation.kind == CollectiveKind::kBroadcast) {
    started.what |= static_cast<uint64_t>(operation.root & 0xff) << 24;
  }
  started.count = operation.slice.count;
  return started;
}

std::string Started::Describe() const {
  const auto kind = static_cast<CollectiveKind>(what & 0xff);
  if (kind == CollectiveKind::kBarrier) return "barrier";
  std::string text(Name(kind));
  if (kind == CollectiveKind::kAllReduce ||
      kind == CollectiveKind::kReduceScatter) {
    text +=
        fmt::format(" ({})", NameOf(static_cast<ReduceOp>((what >> 8) & 0xff)));
  }
  text += fmt::format(" of {} {}", count,
                      Name(static_cast<DataType>((what >> 16) & 0xff)));
  if (kind == CollectiveKind::kBroadcast) {
    text += fmt::format(" from rank {}", (what >> 24) & 0xff);
  }
  return text;
}

}  // namespace lockstep::shm
