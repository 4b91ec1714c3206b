#include "worker/collective/nccl/nccl_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker/collective/page_size.h"

namespace lockstep::worker::collective::nccl {

StatusOr<const Buffer*> NcclMemory::Allocate(size_t bytes, MemoryKind kind) {
  auto owned = std::make_unique<Owned>();
  const Status status = AllocateInto(owned.get(), bytes, kind);
  if (!status.ok()) {
    Free(*owned);
    return status;
  }
  MutexLock lock(&mu_);
  owned_.push_back(std::move(owned));
  return &owned_.back()->buffer;
}

Status NcclMemory::AllocateInto(Owned* owned, size_t bytes, MemoryKind kind) {
  // An empty buffer has memory too: its address must be its own.
  const size_t rounded =
      (std::max<size_t>(bytes, 1) + kPage - 1) & ~(kPage - 1);
  const auto refuse = [&](const char* where, cudaError_t error) {
    return ResourceExhausted("no memory {} for a buffer of {} bytes: {}", where,
                             bytes, cuda_.describe(error));
  };
  if (rounded < bytes) return refuse("anywhere", cudaErrorMemoryAllocation);
  cudaError_t error = cuda_.set_device(device_);
  if (error == cudaSuccess) error = cuda_.allocate(&owned->mirror, rounded);
  if (error == cudaSuccess) error = cuda_.clear(owned->mirror, rounded);
  if (error != cudaSuccess) return refuse("on the GPU", error);
  owned->buffer = {.data = owned->mirror,
                   .bytes = rounded,
                   .kind = MemoryKind::kDevice,
                   .device = device_};
  if (kind == MemoryKind::kDevice) return OkStatus();
  owned->buffer = {.bytes = rounded};
  error = cuda_.allocate_host(&owned->buffer.data, rounded);
  if (error != cudaSuccess) return refuse("that CUDA can lock", error);
  std::memset(owned->buffer.data, 0, rounded);
  return OkStatus();
}

void* NcclMemory::MirrorOf(const Buffer* buffer) const {
  MutexLock lock(&mu_);
  const auto it =
      std::find_if(owned_.begin(), owned_.end(),
                   [&](const auto& owned) { return &owned->buffer == buffer; });
  return it == owned_.end() ? nullptr : (*it)->mirror;
}

void NcclMemory::Free(const Owned& owned) {
  if (owned.buffer.kind == MemoryKind::kHost && owned.buffer.data != nullptr) {
    (void)cuda_.free_host(owned.buffer.data);
  }
  if (owned.mirror != nullptr) (void)cuda_.free(owned.mirror);
}

void NcclMemory::Free() {
  MutexLock lock(&mu_);
  for (const auto& owned : owned_) Free(*owned);
  owned_.clear();
}

}  // namespace lockstep::worker::collective::nccl
