// The buffers of an nccl communicator.
//
// A buffer for the host is page-locked and has a mirror on the device, in
// which NCCL works: copies go there and back on the operations' stream. A
// device buffer is its own mirror.
//
// CUDA chooses where memory lies. So buffers that must stay at their addresses
// when a recovery replaces the communicator are not freed with it: they go to
// NcclKeptMemory, and the next communicator takes them from there.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_MEMORY_H_
#define LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_MEMORY_H_

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/collective/address_range.h"
#include "worker/collective/communicator.h"
#include "worker/collective/nccl/nccl_api.h"

namespace lockstep::worker::collective::nccl {

struct OwnedBuffer {
  Buffer buffer;
  void* mirror = nullptr;
  bool kept = false;
};
using OwnedBuffers = std::vector<std::unique_ptr<OwnedBuffer>>;

// Buffers of a rank between two communicators, of which one has them at a time.
// Safe from any thread. The destructor frees those that no communicator has,
// and waits for at most kFreeing.
class NcclKeptMemory final : public KeptMemory {
 public:
  // CUDA frees once the device has stopped.
  static constexpr Duration kFreeing = std::chrono::seconds(5);

  explicit NcclKeptMemory(const CudaApi& cuda) : cuda_(cuda) {}
  ~NcclKeptMemory() override;

  // Returns that of `range`, and makes it first if there is none. Null where
  // there is no range.
  static std::shared_ptr<NcclKeptMemory> Of(AddressRange* range,
                                            const CudaApi& cuda);

  bool AwaitFree(MonoTime deadline) override;
  // A communicator begins. False: the one before has not ended.
  bool Begin();
  // The buffer at the place of `before`, or null. REQUIRES: between Begin and
  // End.
  std::unique_ptr<OwnedBuffer> Take(const Buffer& before);
  // The communicator has ended, and leaves `buffers`.
  void End(OwnedBuffers buffers);

 private:
  const CudaApi& cuda_;
  Mutex mu_;
  CondVar ended_;
  bool begun_ ABSL_GUARDED_BY(mu_) = false;
  OwnedBuffers buffers_ ABSL_GUARDED_BY(mu_);
};

// Safe from any thread. The destructor does not free the memory: call Free once
// the device has stopped. Where that never happens, kept buffers stay with
// this.
class NcclMemory {
 public:
  // `kept` may be null: then nothing is kept.
  NcclMemory(const CudaApi& cuda, int device,
             std::shared_ptr<NcclKeptMemory> kept)
      : cuda_(cuda), device_(device), kept_(std::move(kept)) {}

  StatusOr<const Buffer*> Allocate(size_t bytes, MemoryKind kind);
  // Communicator::Keep and AllocateAgain.
  void Keep(const Buffer* buffer);
  StatusOr<const Buffer*> AllocateAgain(const Buffer& before);
  // The device memory in which NCCL works for `buffer`; null: the buffer is not
  // of this communicator. Compares the pointer only: safe with any value.
  void* MirrorOf(const Buffer* buffer) const;
  void Free();

 private:
  Status AllocateInto(OwnedBuffer* owned, size_t bytes, MemoryKind kind);
  // Returns when the device has cleared it. It uses a stream of its own, because
  // the program's may hold up the default one for ever.
  Status Clear(void* data, size_t bytes);
  const Buffer* Add(std::unique_ptr<OwnedBuffer> owned);

  const CudaApi& cuda_;
  const int device_;
  const std::shared_ptr<NcclKeptMemory> kept_;
  mutable Mutex mu_;
  OwnedBuffers owned_ ABSL_GUARDED_BY(mu_);
  Mutex clearing_mu_;
  cudaStream_t clearing_ ABSL_GUARDED_BY(clearing_mu_) = nullptr;
};

}  // namespace lockstep::worker::collective::nccl

#endif  // LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_MEMORY_H_
