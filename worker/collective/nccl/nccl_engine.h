// The thread that speaks with NCCL for one communicator.
//
// Every call of NCCL is made by this thread, so that none of them meets
// another: a communicator of NCCL is not made for two threads, and abort and
// free are known to hang beside other calls. The communicator is
// non-blocking: a call that is not done says so, and is polled. The operations
// of a communicator follow each other on one stream of their own; each ends
// with an event. Sums of squares have a second stream, so that they do not wait
// for the peers of what is under way; operations that are launched later wait
// for them.
//
// What follows a stream of the caller's is launched once that has come so far:
// nothing on a stream of ours waits for what is not ours, and so an abort does
// not either.
//
// Break() only writes down the reason and wakes everybody. The thread then
// walks down the ladder: revoke where the library can, which stops what runs;
// abort, which frees; wait until the stream is idle. Whoever waits does so for
// at most abort_timeout longer: after that the device is stuck, every call
// returns, nothing is freed, and only the end of the process helps.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_ENGINE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_ENGINE_H_

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/nccl/nccl_api.h"
#include "worker/collective/nccl/nccl_memory.h"

namespace lockstep {

struct NcclEngineOptions {
  int rank = 0;
  int size = 1;
  int device = 0;
  std::string label;
  Duration operation_timeout = std::chrono::seconds(30);
  Duration abort_timeout = std::chrono::seconds(10);
  MonoTime forming_deadline;
  ncclUniqueId id;
};

struct NcclTask {
  // Of a sum of squares only the slice counts: its result.
  Operation operation;
  const float* squares_of = nullptr;  // on the device, or null
  size_t squares_count = 0;
  void* data = nullptr;         // where NCCL works, from the first element
  void* host = nullptr;         // where the slice is on the host, or null
  cudaEvent_t after = nullptr;  // what it must follow, or null
  cudaEvent_t end = nullptr;    // once launched
  // All under NcclEngine::mu_.
  MonoTime deadline;  // of what it follows; once launched, its own
  MonoTime began;
  MonoTime ended;
  bool done = false;
  Status status;
};

// How errors call it.
std::string Describe(const NcclTask& task);

// Safe from any thread, but Run, which is the thread.
class NcclEngine {
 public:
  // `api` lives as long as the process.
  NcclEngine(NcclEngineOptions options, const GpuApi& api);
  ~NcclEngine() = default;

  // The thread: forms, works until Stop or Break, takes everything down. Holds
  // its own reference, for it may be stuck when all others have gone.
  static void Run(const std::shared_ptr<NcclEngine>& engine);

  // Until the communicator is formed, has failed, or was found stuck.
  Status WaitUntilFormed();
  // `after`: a stream whose work so far comes first, or null.
  StatusOr<std::shared_ptr<NcclTask>> Push(const Operation& operation,
                                           cudaStream_t after);
  // Of the floats of `slice`, which is on the device, into `result`.
  StatusOr<std::shared_ptr<NcclTask>> PushSumOfSquares(const Slice& slice,
                                                       const Slice& result,
                                                       cudaStream_t after);
  // Puts it on `stream`.
  Status Clear(const Slice& slice, cudaStream_t stream);
  // A deadline that passes breaks the communicator.
  Status Wait(NcclTask* task, MonoTime deadline);
  Status WaitForEnd(NcclTask* task);
  bool IsDone(NcclTask* task);
  // REQUIRES: it is done. Nothing where it did not run.
  std::optional<Work::Span> Ran(const NcclTask& task);
  // The first reason stays.
  void Break(Status reason);
  // The thread ends once all is done. False: it did not, and is left alone.
  bool Stop();

  StatusOr<const Buffer*> Allocate(size_t bytes, MemoryKind kind);
  bool Owns(const Buffer* buffer) const {
    return memory_.MirrorOf(buffer) != nullptr;
  }

 private:
  // What follows each other.
  struct Lane {
    cudaStream_t stream = nullptr;
    std::deque<std::shared_ptr<NcclTask>> in_flight;
  };

  StatusOr<cudaEvent_t> TakeEvent();
  // Points the task at the memory of its slice.
  void Place(NcclTask* task);
  // Its events; the first is recorded. What was taken stays in the task.
  Status TakeEvents(NcclTask* task, cudaStream_t after);
  void GiveBackEvents(NcclTask* task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StatusOr<std::shared_ptr<NcclTask>> Enqueue(std::shared_ptr<NcclTask> task,
                                              cudaStream_t after);

  // Called by the thread, without the lock. ---------------------------------
  void RunTasks();
  Status Form();
  Lane* LaneOf(const NcclTask& task) {
    return task.squares_of != nullptr ? &squares_ : &operations_;
  }
  bool Idle() const {
    return operations_.in_flight.empty() && squares_.in_flight.empty();
  }
  // The queue's head, if it is there, what it follows is over, and `only`
  // (where not null) is where it goes. A stream that is late is an error.
  StatusOr<std::shared_ptr<NcclTask>> TakeReady(const Lane* only);
  Status Launch(NcclTask* task);
  Status LaunchSquares();
  Status LaunchOperation(NcclTask* task);
  Status StageIn(const NcclTask& task);
  Status Call(const NcclTask& task);
  Status StageOut(const NcclTask& task, cudaStream_t stream);
  // Until the communicator is no longer busy with the last call.
  Status Settle(MonoTime deadline, std::string_view what);
  // Ends what has ended; the first error.
  Status Look();
  Status LookAt(Lane* lane);
  void Finish(const std::shared_ptr<NcclTask>& task);
  // Frees the communicator, in good order or by the ladder.
  void Dissolve();
  void WaitForStop();
  void Free();
  bool Revoke(MonoTime deadline);
  void FinishAndDestroy(MonoTime deadline);
  bool WaitUntilIdle(MonoTime deadline);
  void FailAll();
  void Pause();

  Status LoadKernels();
  MonoTime DeadlineOf(const NcclTask& task);
  Status LateStatus(const NcclTask& task, std::string_view how) const;
  Status CheckNotCaptured(cudaStream_t stream) const;
  Status CudaStatus(cudaError_t error, std::string_view what) const;
  Status NcclStatus(ncclResult_t result, std::string_view what) const;
  // Until when a broken communicator may take.
  MonoTime EndOfAbort() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status StuckStatus() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsBroken();

  const NcclEngineOptions options_;
  const GpuApi& api_;
  NcclMemory memory_;

  // The thread's own.
  ncclComm_t comm_ = nullptr;
  Lane operations_;
  Lane squares_;
  void* word_ = nullptr;      // reduced by a barrier
  void* partials_ = nullptr;  // of the sum of squares under way
  int idle_looks_ = 0;

  Mutex mu_;
  CondVar queued_;   // for the thread
  CondVar changed_;  // for those who wait
  std::deque<std::shared_ptr<NcclTask>> queue_ ABSL_GUARDED_BY(mu_);
  std::vector<cudaEvent_t> events_ ABSL_GUARDED_BY(mu_);  // to be used again
  Status broken_ ABSL_GUARDED_BY(mu_);
  MonoTime broken_at_ ABSL_GUARDED_BY(mu_);
  bool formed_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool dissolved_ ABSL_GUARDED_BY(mu_) = false;  // the device has stopped
  bool over_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_ENGINE_H_
