#include "worker/collective/tcp/wire.h"

#include <fmt/format.h>

#include <cstring>

namespace lockstep::tcp {
namespace {

constexpr uint32_t kMagic = 0x4f54534c;  // "LSTO"

std::string_view OpName(uint8_t op) {
  switch (static_cast<ReduceOp>(op)) {
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

Header MakeHeader(const Operation& operation, uint64_t sequence,
                  Purpose purpose) {
  Header header{};
  header.magic = kMagic;
  header.kind = static_cast<uint8_t>(operation.kind);
  header.purpose = static_cast<uint8_t>(purpose);
  header.tag = operation.tag;
  header.sequence = sequence;
  if (operation.kind == CollectiveKind::kBarrier) return header;
  header.type = static_cast<uint8_t>(operation.slice.type);
  header.count = operation.slice.count;
  if (operation.kind == CollectiveKind::kBroadcast) {
    header.root = static_cast<uint32_t>(operation.root);
  }
  if (operation.kind == CollectiveKind::kAllReduce ||
      operation.kind == CollectiveKind::kReduceScatter) {
    header.op = static_cast<uint8_t>(operation.op);
  }
  return header;
}

Header MakeGoodbye() {
  Header header{};
  header.magic = kMagic;
  header.kind = kGoodbye;
  return header;
}

bool IsHeader(const Header& header) { return header.magic == kMagic; }

bool IsGoodbye(const Header& header) {
  return IsHeader(header) && header.kind == kGoodbye;
}

bool SameOperation(const Header& a, const Header& b) {
  return std::memcmp(&a, &b, sizeof(Header)) == 0;
}

std::string Describe(const Header& header) {
  if (!IsHeader(header)) return "bytes of another protocol";
  if (IsGoodbye(header)) return "its end";
  if (header.purpose == static_cast<uint8_t>(Purpose::kTuning)) {
    return fmt::format("operation {}, tuning", header.sequence);
  }
  const auto kind = static_cast<CollectiveKind>(header.kind);
  std::string text =
      fmt::format("operation {}, {}", header.sequence, Name(kind));
  if (kind != CollectiveKind::kBarrier) {
    if (kind == CollectiveKind::kAllReduce ||
        kind == CollectiveKind::kReduceScatter) {
      text += fmt::format(" ({})", OpName(header.op));
    }
    text += fmt::format(" of {} {}", header.count,
                        Name(static_cast<DataType>(header.type)));
    if (kind == CollectiveKind::kBroadcast) {
      text += fmt::format(" from rank {}", header.root);
    }
  }
  if (header.tag != 0) text += fmt::format(" [tag {}]", header.tag);
  return text;
}

}  // namespace lockstep::tcp
