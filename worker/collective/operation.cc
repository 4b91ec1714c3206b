#include "worker/collective/operation.h"

#include <algorithm>
#include <cstring>

namespace lockstep::worker::collective {
namespace {

bool Reduces(WordsKind kind) {
  return kind == WordsKind::kAllReduce || kind == WordsKind::kReduceScatter ||
         kind == WordsKind::kReduce;
}

WordsKind WordsKindOf(CollectiveKind kind) {
  return kind == CollectiveKind::kAllToAll ? WordsKind::kAllToAll
                                           : static_cast<WordsKind>(kind);
}

bool Reduces(CollectiveKind kind) { return Reduces(WordsKindOf(kind)); }

bool HasRoot(WordsKind kind) {
  return kind == WordsKind::kBroadcast || kind == WordsKind::kReduce ||
         kind == WordsKind::kGather || kind == WordsKind::kScatter;
}

std::string_view NameOf(WordsKind kind) {
  switch (kind) {
    case WordsKind::kReduce:
      return "reduce";
    case WordsKind::kGather:
      return "gather";
    case WordsKind::kScatter:
      return "scatter";
    case WordsKind::kAllToAll:
      return "all-to-all";
    default:
      return Name(static_cast<CollectiveKind>(kind));
  }
}

static_assert(static_cast<int>(WordsKind::kBarrier) ==
              static_cast<int>(CollectiveKind::kBarrier));

// Of OperationWords::what: the kind, from 1, below; root above.
constexpr int kOpShift = 8;
constexpr int kTypeShift = 16;
constexpr int kRootShift = 32;
// Added to the type.
constexpr uint64_t kBool = 0x80;

}  // namespace

size_t BytesOf(const Operation& operation) {
  if (operation.kind == CollectiveKind::kBarrier) return 0;
  return operation.slice.count * SizeOf(operation.slice.type);
}

std::string Describe(const Operation& operation) {
  if (operation.kind == CollectiveKind::kBarrier) return "barrier";
  const bool up_to = operation.kind == CollectiveKind::kAllToAll;
  return fmt::format("{} of {}{} {}", Name(operation.kind),
                     up_to ? "up to " : "", operation.slice.count,
                     Name(operation.slice.type));
}

OperationWords WordsOf(const Operation& operation) {
  OperationWords words = WordsOf(ComposedOperation{
      .kind = WordsKindOf(operation.kind),
      .op = operation.op,
      .type = operation.slice.type,
      .root = operation.root,
      .count = operation.slice.count,
  });
  if (operation.kind == CollectiveKind::kAllToAll) {
    words.count = operation.slice.count;
  }
  return words;
}

OperationWords WordsOf(const ComposedOperation& operation) {
  const WordsKind kind = operation.kind;
  OperationWords words{.what = 1 + static_cast<uint64_t>(kind)};
  if (kind == WordsKind::kBarrier) return words;
  if (Reduces(kind)) {
    words.what |= static_cast<uint64_t>(operation.op) << kOpShift;
  }
  const uint64_t type = static_cast<uint64_t>(operation.type);
  words.what |= (operation.of_bool ? type | kBool : type) << kTypeShift;
  if (HasRoot(kind)) {
    words.what |= static_cast<uint64_t>(operation.root) << kRootShift;
  }
  // Ranks may have different ones.
  if (kind != WordsKind::kAllToAll) words.count = operation.count;
  return words;
}

std::string Describe(const OperationWords& words) {
  const uint64_t number = words.what & 0xff;
  if (number == 0 || number > 1 + static_cast<uint64_t>(WordsKind::kAllToAll)) {
    return "an unknown operation";
  }
  const auto kind = static_cast<WordsKind>(number - 1);
  std::string text(NameOf(kind));
  if (kind == WordsKind::kBarrier) return text;
  if (Reduces(kind)) {
    const auto op = static_cast<ReduceOp>(words.what >> kOpShift & 0xff);
    text += fmt::format(" ({})", Name(op));
  }
  const uint64_t type = words.what >> kTypeShift & 0xff;
  text += " of ";
  if (kind != WordsKind::kAllToAll) {
    text += fmt::format("{} ", words.count);
  } else if (words.count > 0) {
    text += fmt::format("up to {} ", words.count);
  }
  text += (type & kBool) != 0 ? "bool" : Name(static_cast<DataType>(type));
  if (HasRoot(kind)) {
    const bool from =
        kind == WordsKind::kBroadcast || kind == WordsKind::kScatter;
    text += fmt::format(" {} rank {}", from ? "from" : "to",
                        words.what >> kRootShift & 0x7fffffff);
  }
  return text;
}

std::string Describe(const OperationWords& words,
                     const OperationWords& part_of) {
  if (part_of == OperationWords()) return Describe(words);
  return Describe(words) + ", part of " + Describe(part_of);
}

namespace {

Status CheckParts(const Operation& operation, std::span<const PeerPart> parts,
                  int size) {
  if (parts.size() != static_cast<size_t>(size)) {
    return InvalidArgument("{} has {} parts for {} ranks", Describe(operation),
                           parts.size(), size);
  }
  for (const PeerPart& part : parts) {
    if (part.count == 0) continue;
    const auto address = reinterpret_cast<uintptr_t>(part.data);
    if (address == 0 || address % SizeOf(operation.slice.type) != 0) {
      return InvalidArgument("{}: memory at {:#x} is not aligned to {}",
                             Describe(operation), address,
                             Name(operation.slice.type));
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckCounts(const Operation& operation, int rank) {
  size_t room = operation.slice.count;
  for (int peer = 0; peer < static_cast<int>(operation.sends.size()); ++peer) {
    const size_t send = operation.sends[peer].count;
    const size_t receive = operation.receives[peer].count;
    if (peer == rank ? send != receive
                     : send > room || receive > operation.slice.count) {
      return InvalidArgument(
          "{}: rank {} has {} elements for rank {}, and {} "
          "from it",
          Describe(operation), rank, send, peer, receive);
    }
    if (peer != rank) room -= send;
  }
  return OkStatus();
}

bool CopyOwnPart(const Operation& operation, int rank,
                 const std::function<bool()>& stopped) {
  constexpr size_t kStep = size_t{4} << 20;
  const PeerPart& from = operation.sends[rank];
  const size_t bytes = from.count * SizeOf(operation.slice.type);
  for (size_t done = 0; done < bytes; done += kStep) {
    if (stopped()) return false;
    std::memcpy(static_cast<char*>(operation.receives[rank].data) + done,
                static_cast<const char*>(from.data) + done,
                std::min(kStep, bytes - done));
  }
  return true;
}

Status CheckOperation(const Operation& operation, int size) {
  switch (operation.kind) {
    case CollectiveKind::kBarrier:
      return OkStatus();
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kAllToAll:
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
  if (operation.op > ReduceOp::kProduct) {
    return InvalidArgument("{}: reduction {} is unknown", Describe(operation),
                           static_cast<int>(operation.op));
  }
  // In elements, so that nothing overflows.
  const size_t room = slice.buffer->bytes / element;
  if (slice.offset > room || slice.count > room - slice.offset) {
    return InvalidArgument(
        "{} from element {} leaves its buffer of {} bytes ({} elements)",
        Describe(operation), slice.offset, slice.buffer->bytes, room);
  }
  if (Reduces(operation.kind) && operation.op == ReduceOp::kMean &&
      !IsFloat(slice.type)) {
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
  if (operation.kind != CollectiveKind::kAllToAll) return OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(CheckParts(operation, operation.sends, size));
  return CheckParts(operation, operation.receives, size);
}

}  // namespace lockstep::worker::collective
