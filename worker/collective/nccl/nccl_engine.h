// The callers' side of one nccl communicator: tasks in, results out. The thread
// behind it is nccl_thread.h, the state that both share nccl_queue.h.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_ENGINE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_ENGINE_H_

#include <memory>
#include <string_view>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/nccl/nccl_api.h"
#include "worker/collective/nccl/nccl_memory.h"
#include "worker/collective/nccl/nccl_queue.h"

namespace lockstep::worker::collective::nccl {

// Safe from any thread, except Run, which is the thread.
class NcclEngine {
 public:
  // `api` lives as long as the process.
  NcclEngine(NcclEngineOptions options, const GpuApi& api,
             std::shared_ptr<NcclKeptMemory> kept);

  // The thread: forms, works until Stop or Break, takes everything down. Holds
  // its own reference, for it may be stuck when all others have gone.
  static void Run(const std::shared_ptr<NcclEngine>& engine);

  // Waiting, breaking and stopping.
  NcclQueue* queue() { return &queue_; }

  // `after`: a stream whose work so far comes first, or null.
  StatusOr<std::shared_ptr<NcclTask>> Push(const Operation& operation,
                                           cudaStream_t after);
  // Adds up the squares of the floats of `slice`, which is on the device, into
  // `result`.
  StatusOr<std::shared_ptr<NcclTask>> PushSumOfSquares(const Slice& slice,
                                                       const Slice& result,
                                                       cudaStream_t after);
  // Puts the clearing of `slice` on `stream`.
  Status Clear(const Slice& slice, cudaStream_t stream);
  // Puts on `stream`: `to`, which is on the device as `from`, grows by `from`.
  Status Add(const Slice& to, const Slice& from, cudaStream_t stream);
  // Copies on `stream`, and waits for it.
  Status Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
              cudaStream_t stream);

  StatusOr<const Buffer*> Allocate(size_t bytes, MemoryKind kind);
  void Keep(const Buffer* buffer) { memory_.Keep(buffer); }
  StatusOr<const Buffer*> AllocateAgain(const Buffer& before) {
    return memory_.AllocateAgain(before);
  }
  bool Owns(const Buffer* buffer) const {
    return memory_.MirrorOf(buffer) != nullptr;
  }

 private:
  StatusOr<cudaEvent_t> TakeEvent();
  // On the device.
  char* PlaceOf(const Slice& slice) const;
  // Points the task at the memory of its slice.
  void Place(NcclTask* task);
  // Takes the task's events, and records the first. Events stay in the task
  // also after an error.
  Status TakeEvents(NcclTask* task, cudaStream_t after);
  StatusOr<std::shared_ptr<NcclTask>> Enqueue(std::shared_ptr<NcclTask> task,
                                              cudaStream_t after);
  Status CheckNotCaptured(cudaStream_t stream) const;
  // Waits until `stream` has come so far.
  Status WaitFor(cudaStream_t stream, cudaEvent_t event);
  Status CudaError(cudaError_t error, std::string_view what) const {
    return CudaStatus(api_.cuda, options_.label, error, what);
  }

  const NcclEngineOptions options_;
  const GpuApi& api_;
  NcclMemory memory_;
  NcclQueue queue_;
};

}  // namespace lockstep::worker::collective::nccl

#endif  // LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_ENGINE_H_
