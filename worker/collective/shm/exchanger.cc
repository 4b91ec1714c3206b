#include "worker/collective/shm/exchanger.h"

#include <algorithm>
#include <cstring>

#include "worker/collective/shm/layout.h"
#include "worker/collective/shm/stream_copy.h"

namespace lockstep::worker::collective::shm {
namespace {

// Where a share begins in its slot.
using Place = uint32_t;

size_t Aligned(size_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

unsigned char* At(const PeerPart& part, size_t byte) {
  return static_cast<unsigned char*>(part.data) + byte;
}

}  // namespace

size_t Exchanger::TableBytes() const { return Aligned(size_ * sizeof(Place)); }

// A share is at most one element longer than the part divided by the blocks,
// and begins on a cache line.
void Exchanger::Begin(const Operation& operation) {
  const size_t each = SizeOf(operation.slice.type);
  const size_t room = slot_bytes_ - TableBytes() - size_ * (kCacheLine + each);
  const size_t elements = std::max<size_t>(room / each, 1);
  const size_t count = operation.slice.count;
  blocks_ = count / elements + (count % elements != 0 || count == 0 ? 1 : 0);
}

Range Exchanger::ShareOf(size_t count, uint64_t block) const {
  const size_t share = count / blocks_;
  const size_t longer = count % blocks_;  // shares
  return {share * block + std::min<size_t>(block, longer),
          share + (block < longer ? 1 : 0)};
}

void Exchanger::Give(const Operation& operation, uint64_t block,
                     unsigned char* slot, StorePolicy* store_policy) const {
  const size_t each = SizeOf(operation.slice.type);
  size_t used = TableBytes();
  for (int to = 0; to < size_; ++to) {
    if (to == rank_) continue;
    const PeerPart& part = operation.sends[to];
    const Range share = ShareOf(part.count, block);
    const size_t bytes = share.count * each;
    if (bytes == 0) continue;
    const auto place = static_cast<Place>(used);
    std::memcpy(slot + to * sizeof(Place), &place, sizeof(place));
    const MonoTime start = MonotonicNow();
    (store_policy->past_caches() ? StreamCopy : CopyBytes)(
        slot + used, At(part, share.first * each), bytes);
    store_policy->Add(bytes, MonotonicNow() - start);
    used += Aligned(bytes);
  }
}

void Exchanger::Take(const Operation& operation, uint64_t block, int source,
                     const unsigned char* slot) const {
  const size_t each = SizeOf(operation.slice.type);
  const PeerPart& part = operation.receives[source];
  const Range share = ShareOf(part.count, block);
  const size_t bytes = share.count * each;
  if (bytes == 0) return;
  Place place = 0;
  std::memcpy(&place, slot + rank_ * sizeof(Place), sizeof(place));
  std::memcpy(At(part, share.first * each),
              slot + std::min<size_t>(place, slot_bytes_ - bytes), bytes);
}

}  // namespace lockstep::worker::collective::shm
