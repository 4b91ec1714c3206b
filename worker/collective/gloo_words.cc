#include "worker/collective/gloo_words.h"

#include <cstring>

#include "common/base/status.h"

namespace lockstep {
namespace {

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
  return "?";
}

}  // namespace

GlooWords WordsOf(const Operation& operation, uint32_t sequence) {
  GlooWords words;
  words.kind = static_cast<uint8_t>(operation.kind);
  words.tag = operation.tag;
  words.sequence = sequence;
  if (operation.kind == CollectiveKind::kBarrier) return words;
  words.type = static_cast<uint8_t>(operation.slice.type);
  words.count = operation.slice.count;
  if (operation.kind == CollectiveKind::kBroadcast) {
    words.root = static_cast<uint32_t>(operation.root);
  } else if (operation.kind != CollectiveKind::kAllGather) {
    words.op = static_cast<uint8_t>(operation.op);
  }
  return words;
}

std::string Describe(const GlooWords& words) {
  const std::string number = fmt::format("operation {}, ", words.sequence);
  const auto kind = static_cast<CollectiveKind>(words.kind);
  if (kind == CollectiveKind::kBarrier) return number + "barrier";
  if (words.kind > static_cast<uint8_t>(CollectiveKind::kBarrier) ||
      words.type > static_cast<uint8_t>(DataType::kUint8)) {
    return number + "of an unknown kind";
  }
  std::string text =
      fmt::format("{}{} of {} {}", number, Name(kind), words.count,
                  Name(static_cast<DataType>(words.type)));
  if (kind == CollectiveKind::kBroadcast) {
    text += fmt::format(" from rank {}", words.root);
  } else if (kind != CollectiveKind::kAllGather) {
    text += fmt::format(" ({})", NameOf(static_cast<ReduceOp>(words.op)));
  }
  if (words.tag != 0) text += fmt::format(", tag {:#x}", words.tag);
  return text;
}

uint32_t GlooTag(const GlooWords& words) {
  // FNV-1a.
  unsigned char bytes[sizeof(words)];
  std::memcpy(bytes, &words, sizeof(words));
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char byte : bytes) {
    hash = (hash ^ byte) * 0x100000001b3;
  }
  return words.sequence << 16 | static_cast<uint32_t>(hash >> 48);
}

}  // namespace lockstep
