// The thread that speaks with NCCL for one communicator: forms, launches and
// polls, and takes everything down.
//
// The operations of a communicator follow each other on one stream of their
// own; each ends with an event. Sums of squares have a second stream, so that
// they do not wait for the peers of what is under way; operations that are
// launched later wait for them.
//
// A task that follows a stream of the caller's is launched once that stream has
// come so far: no stream of ours waits for the caller's work, so an abort does
// not either.
//
// After a Break the thread goes down a ladder: revoke where the library can,
// which stops what runs; abort, which frees; wait until the streams are idle.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_THREAD_H_
#define LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_THREAD_H_

#include <memory>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/nccl/nccl_api.h"
#include "worker/collective/nccl/nccl_comm.h"
#include "worker/collective/nccl/nccl_memory.h"
#include "worker/collective/nccl/nccl_queue.h"

namespace lockstep::worker::collective::nccl {

// Used by one thread.
class NcclThread {
 public:
  // All outlive it. `memory` is freed at the end.
  NcclThread(const NcclEngineOptions& options, const GpuApi& api,
             NcclMemory* memory, NcclQueue* queue)
      : options_(options),
        api_(api),
        memory_(*memory),
        queue_(*queue),
        comm_(api.nccl, options) {}

  // Forms, works until Stop or Break, takes everything down. May never return
  // where the device is stuck.
  void Run();

 private:
  // Tasks that follow each other.
  struct Lane {
    cudaStream_t stream = nullptr;
    NcclTasks in_flight;
  };

  Lane* LaneOf(const NcclTask& task) {
    return task.squares_of != nullptr ? &squares_ : &operations_;
  }
  bool Idle() const {
    return operations_.in_flight.empty() && squares_.in_flight.empty();
  }

  Status Form();
  Status LoadKernels();
  void RunTasks();
  // The queue's first task, if there is one, what it follows is over, and
  // `only` (where not null) is where it goes. A stream that is late is an
  // error.
  StatusOr<std::shared_ptr<NcclTask>> TakeReady(const Lane* only);
  Status Launch(NcclTask* task);
  Status LaunchSquares();
  Status LaunchOperation(NcclTask* task);
  Status StageIn(const NcclTask& task);
  Status StageOut(const NcclTask& task, cudaStream_t stream);
  // Waits until the communicator is no longer busy with the last call.
  Status Settle(MonoTime deadline, std::string_view what);
  // Aborted where it forms, and CommunicatorOptions::cancelled is true.
  Status CheckCancelled() const;
  // Finishes the tasks that have ended; the first error.
  Status Look();
  Status LookAt(Lane* lane);
  void Pause();

  // Frees the communicator, in good order or by the ladder.
  void Dissolve();
  void FinishAndDestroy(MonoTime deadline);
  bool WaitUntilIdle(MonoTime deadline);
  void FailAll(bool stuck = false) {
    queue_.FailAll({&operations_.in_flight, &squares_.in_flight}, stuck);
  }
  void Free(const std::vector<cudaEvent_t>& events);

  Status CudaError(cudaError_t error, std::string_view what) const {
    return CudaStatus(api_.cuda, options_.label, error, what);
  }

  const NcclEngineOptions& options_;
  const GpuApi& api_;
  NcclMemory& memory_;
  NcclQueue& queue_;
  NcclComm comm_;
  Lane operations_;
  Lane squares_;
  void* word_ = nullptr;      // reduced by a barrier
  void* partials_ = nullptr;  // of the sum of squares under way
  int idle_looks_ = 0;
  bool formed_ = false;
};

}  // namespace lockstep::worker::collective::nccl

#endif  // LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_THREAD_H_
