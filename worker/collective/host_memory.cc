#include "worker/collective/host_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "worker/collective/page_size.h"

namespace lockstep::worker::collective {

HostMemory::~HostMemory() {
  for (const auto& buffer : buffers_) munmap(buffer->data, buffer->bytes);
}

StatusOr<const Buffer*> HostMemory::Allocate(size_t bytes) {
  // An empty buffer has memory too: its address must be its own.
  const size_t rounded =
      (std::max<size_t>(bytes, 1) + kPage - 1) & ~(kPage - 1);
  void* data = rounded < bytes ? MAP_FAILED
                               : mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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
