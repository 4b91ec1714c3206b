#include "worker/collective/hierarchical/exchange_parts.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace lockstep::worker::collective::hierarchical {

uint64_t RoundsFor(uint64_t most, DataType type) {
  const uint64_t elements = kRoundBytes / SizeOf(type);
  return std::max<uint64_t>(1, most / elements + (most % elements != 0));
}

Share ShareOf(size_t count, uint64_t rounds, uint64_t round) {
  const size_t each = count / rounds;
  const size_t longer = count % rounds;
  return {each * round + std::min<size_t>(round, longer),
          each + (round < longer ? 1 : 0)};
}

PeerPart PartOf(const PeerPart& whole, const Share& share, size_t element) {
  if (share.count == 0) return {};
  return {static_cast<char*>(whole.data) + share.first * element, share.count};
}

void PackParts(const std::vector<PeerPart>& parts, size_t element, char* to) {
  for (const PeerPart& part : parts) {
    if (part.count == 0) continue;
    std::memcpy(to, part.data, part.count * element);
    to += part.count * element;
  }
}

void UnpackParts(const std::vector<PeerPart>& parts, size_t element,
                 const char* from) {
  for (const PeerPart& part : parts) {
    if (part.count == 0) continue;
    std::memcpy(part.data, from, part.count * element);
    from += part.count * element;
  }
}

Status Scratch::Reserve(size_t needed) {
  if (bytes_ >= needed) return OkStatus();
  bytes_ = 0;
  data_.reset(new (std::nothrow) char[needed]);
  if (data_ == nullptr) {
    return ResourceExhausted("no memory to pass {} bytes on", needed);
  }
  bytes_ = needed;
  return OkStatus();
}

Bundle::Bundle(std::vector<PeerPart> parts, size_t element, char* staged)
    : parts_(std::move(parts)), element_(element) {
  for (const PeerPart& part : parts_) {
    if (part.count == 0) continue;
    if (whole_.count == 0) whole_.data = part.data;
    if (part.data != static_cast<char*>(whole_.data) + whole_.count * element) {
      staged_ = true;
    }
    whole_.count += part.count;
  }
  if (staged_) whole_.data = staged;
}

void Bundle::Pack() const {
  if (staged_) PackParts(parts_, element_, static_cast<char*>(whole_.data));
}

void Bundle::Unpack() const {
  if (staged_) UnpackParts(parts_, element_, static_cast<char*>(whole_.data));
}

}  // namespace lockstep::worker::collective::hierarchical
