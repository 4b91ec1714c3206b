#include "worker/collective/nccl/nccl_memory.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "worker/collective/page_size.h"

namespace lockstep::worker::collective::nccl {

namespace {

// Filling memory takes milliseconds.
constexpr Duration kClearing = std::chrono::seconds(10);

void FreeBuffer(const CudaApi& cuda, const OwnedBuffer& owned) {
  if (owned.buffer.kind == MemoryKind::kHost && owned.buffer.data != nullptr) {
    (void)cuda.free_host(owned.buffer.data);
  }
  if (owned.mirror != nullptr) (void)cuda.free(owned.mirror);
}

}  // namespace

// The program's stream may be stuck, and then this must not be.
NcclKeptMemory::~NcclKeptMemory() {
  struct Freeing {
    Mutex mu;
    CondVar changed;
    bool done ABSL_GUARDED_BY(mu) = false;
  };
  const auto freeing = std::make_shared<Freeing>();
  OwnedBuffers buffers;
  {
    MutexLock lock(&mu_);
    buffers = std::move(buffers_);
  }
  if (buffers.empty()) return;
  std::thread thread([&cuda = cuda_, freeing, freed = std::move(buffers)] {
    for (const auto& owned : freed) FreeBuffer(cuda, *owned);
    MutexLock lock(&freeing->mu);
    freeing->done = true;
    freeing->changed.NotifyAll();
  });
  const MonoTime deadline = MonotonicNow() + kFreeing;
  bool done = false;
  {
    MutexLock lock(&freeing->mu);
    while (!freeing->done &&
           freeing->changed.WaitUntil(&freeing->mu, deadline)) {
    }
    done = freeing->done;
  }
  done ? thread.join() : thread.detach();
}

std::shared_ptr<NcclKeptMemory> NcclKeptMemory::Of(AddressRange* range,
                                                   const CudaApi& cuda) {
  if (range == nullptr) return nullptr;
  if (range->kept() == nullptr) {
    range->kept() = std::make_shared<NcclKeptMemory>(cuda);
  }
  return std::static_pointer_cast<NcclKeptMemory>(range->kept());
}

bool NcclKeptMemory::AwaitFree(MonoTime deadline) {
  MutexLock lock(&mu_);
  while (begun_ && ended_.WaitUntil(&mu_, deadline)) {
  }
  return !begun_;
}

bool NcclKeptMemory::Begin() {
  MutexLock lock(&mu_);
  return !std::exchange(begun_, true);
}

std::unique_ptr<OwnedBuffer> NcclKeptMemory::Take(const Buffer& before) {
  MutexLock lock(&mu_);
  const auto it =
      std::find_if(buffers_.begin(), buffers_.end(), [&](const auto& owned) {
        return owned->buffer.data == before.data &&
               owned->buffer.kind == before.kind;
      });
  if (it == buffers_.end()) return nullptr;
  std::unique_ptr<OwnedBuffer> owned = std::move(*it);
  buffers_.erase(it);
  return owned;
}

void NcclKeptMemory::End(OwnedBuffers buffers) {
  MutexLock lock(&mu_);
  begun_ = false;
  ended_.NotifyAll();
  for (auto& owned : buffers) buffers_.push_back(std::move(owned));
}

StatusOr<const Buffer*> NcclMemory::Allocate(size_t bytes, MemoryKind kind) {
  auto owned = std::make_unique<OwnedBuffer>();
  Status status = AllocateInto(owned.get(), bytes, kind);
  if (status.ok()) status = Clear(owned->mirror, owned->buffer.bytes);
  if (status.code() == StatusCode::kResourceExhausted) {
    FreeBuffer(cuda_, *owned);
    return status;
  }
  // Where clearing has failed, the device may still do it.
  const Buffer* const buffer = Add(std::move(owned));
  LOCKSTEP_RETURN_IF_ERROR(status);
  return buffer;
}

Status NcclMemory::Clear(void* data, size_t bytes) {
  MutexLock lock(&clearing_mu_);
  cudaError_t error =
      clearing_ != nullptr ? cudaSuccess : cuda_.create_stream(&clearing_);
  if (error == cudaSuccess) error = cuda_.clear_on(data, bytes, clearing_);
  const MonoTime deadline = MonotonicNow() + kClearing;
  while (error == cudaSuccess &&
         (error = cuda_.query_stream(clearing_)) == cudaErrorNotReady) {
    if (MonotonicNow() >= deadline) {
      return Internal("the GPU did not clear {} bytes in {:.0f} s", bytes,
                      ToSeconds(kClearing));
    }
    error = cudaSuccess;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  if (error == cudaSuccess) return OkStatus();
  return Internal("clearing memory: CUDA says: {}", cuda_.describe(error));
}

const Buffer* NcclMemory::Add(std::unique_ptr<OwnedBuffer> owned) {
  MutexLock lock(&mu_);
  owned_.push_back(std::move(owned));
  return &owned_.back()->buffer;
}

void NcclMemory::Keep(const Buffer* buffer) {
  MutexLock lock(&mu_);
  for (const auto& owned : owned_) {
    if (&owned->buffer == buffer) owned->kept = kept_ != nullptr;
  }
}

StatusOr<const Buffer*> NcclMemory::AllocateAgain(const Buffer& before) {
  auto owned = kept_ != nullptr ? kept_->Take(before) : nullptr;
  if (owned == nullptr) return MemoryElsewhere();
  if (owned->buffer.kind == MemoryKind::kHost) {
    std::memset(owned->buffer.data, 0, owned->buffer.bytes);
  }
  return Add(std::move(owned));
}

Status NcclMemory::AllocateInto(OwnedBuffer* owned, size_t bytes,
                                MemoryKind kind) {
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

void NcclMemory::Free() {
  MutexLock lock(&mu_);
  OwnedBuffers kept;
  for (auto& owned : owned_) {
    if (owned->kept) {
      kept.push_back(std::move(owned));
    } else {
      FreeBuffer(cuda_, *owned);
    }
  }
  owned_.clear();
  {
    MutexLock clearing_lock(&clearing_mu_);
    if (clearing_ != nullptr) (void)cuda_.destroy_stream(clearing_);
    clearing_ = nullptr;
  }
  if (kept_ != nullptr) kept_->End(std::move(kept));
}

}  // namespace lockstep::worker::collective::nccl
