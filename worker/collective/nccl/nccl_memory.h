// The buffers of an nccl communicator.
//
// A buffer for the host is page-locked and has a mirror on the device, in
// which NCCL works: copies go there and back on the operations' stream. A
// device buffer is its own mirror.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_MEMORY_H_
#define LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_MEMORY_H_

#include <memory>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/nccl/nccl_api.h"

namespace lockstep::worker::collective::nccl {

// Safe from any thread. The destructor does not free the memory: call Free once
// the device has stopped.
class NcclMemory {
 public:
  NcclMemory(const CudaApi& cuda, int device) : cuda_(cuda), device_(device) {}

  StatusOr<const Buffer*> Allocate(size_t bytes, MemoryKind kind);
  // The device memory in which NCCL works for `buffer`; null: the buffer is not
  // of this communicator. Compares the pointer only: safe with any value.
  void* MirrorOf(const Buffer* buffer) const;
  void Free();

 private:
  struct Owned {
    Buffer buffer;
    void* mirror = nullptr;
  };
  Status AllocateInto(Owned* owned, size_t bytes, MemoryKind kind);
  void Free(const Owned& owned);

  const CudaApi& cuda_;
  const int device_;
  mutable Mutex mu_;
  std::vector<std::unique_ptr<Owned>> owned_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::worker::collective::nccl

#endif  // LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_MEMORY_H_
