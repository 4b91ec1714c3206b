#include "worker/process_group/peer_parts.h"

namespace lockstep::worker::process_group {

StatusOr<PeerParts> PeerParts::Of(const SpanList& list,
                                  std::span<const uint64_t> splits,
                                  size_t element, KeptMemory* memory) {
  PeerParts parts;
  size_t first = 0;
  size_t copied = 0;
  for (const uint64_t count : splits) {
    const auto place = list.Contiguous(first, count);
    if (!place) {
      parts.copied_.push_back({parts.parts_.size(), first});
      copied += count;
    }
    parts.parts_.push_back({place.value_or(nullptr), count});
    first += count;
  }
  if (copied == 0) return parts;
  LOCKSTEP_ASSIGN_OR_RETURN(char* free, memory->Get(copied * element));
  for (const Copied& part : parts.copied_) {
    parts.parts_[part.part].data = free;
    free += parts.parts_[part.part].count * element;
  }
  return parts;
}

void PeerParts::Pack(const SpanList& list) const {
  for (const Copied& copied : copied_) {
    const collective::PeerPart& part = parts_[copied.part];
    list.CopyTo(static_cast<char*>(part.data), copied.first, part.count);
  }
}

void PeerParts::Unpack(const SpanList& list) const {
  for (const Copied& copied : copied_) {
    const collective::PeerPart& part = parts_[copied.part];
    list.CopyFrom(static_cast<const char*>(part.data), copied.first,
                  part.count);
  }
}

}  // namespace lockstep::worker::process_group
