#include "worker/collective/host_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "worker/collective/page_size.h"

namespace lockstep::worker::collective {

HostMemory::~HostMemory() {
  for (const auto& buffer : buffers_) {
    const auto* const data = static_cast<unsigned char*>(buffer->data);
    const bool in_range = has_range_ && data >= range_->data() &&
                          data < range_->data() + range_->bytes();
    if (!in_range) munmap(buffer->data, buffer->bytes);
  }
  if (has_range_) range_->Clear();
}

void* HostMemory::TakeFromRange(size_t bytes) {
  if (range_ == nullptr) return nullptr;
  if (!has_range_) has_range_ = range_->Take();
  if (!has_range_) return nullptr;
  const size_t unit = bytes >= kHugePage ? kHugePage : kPage;
  const size_t begin = (used_ + unit - 1) / unit * unit;
  if (begin > range_->bytes() || bytes > range_->bytes() - begin) {
    return nullptr;
  }
  used_ = begin + bytes;
  return range_->data() + begin;
}

StatusOr<const Buffer*> HostMemory::Allocate(size_t bytes) {
  // An empty buffer has memory too: its address must be its own.
  const size_t rounded =
      (std::max<size_t>(bytes, 1) + kPage - 1) & ~(kPage - 1);
  void* data = rounded < bytes ? MAP_FAILED : TakeFromRange(rounded);
  if (data == nullptr) {
    data = mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (data == MAP_FAILED) {
    return ResourceExhausted("no memory for a buffer of {} bytes", bytes);
  }
  // All of it is gone through in every step. What the system refuses is no
  // error.
  if (rounded >= kHugePage) madvise(data, rounded, MADV_HUGEPAGE);
  buffers_.push_back(std::make_unique<Buffer>(
      Buffer{.data = data, .bytes = rounded, .kind = MemoryKind::kHost}));
  return buffers_.back().get();
}

bool HostMemory::Owns(const Buffer* buffer) const {
  return buffer == &any_ ||
         std::any_of(buffers_.begin(), buffers_.end(),
                     [&](const auto& mine) { return mine.get() == buffer; });
}

}  // namespace lockstep::worker::collective
