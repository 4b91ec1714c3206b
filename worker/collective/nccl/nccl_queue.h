// The tasks of one nccl communicator, as callers and its thread share them; and
// how the communicator comes to its end.
//
// A caller breaks the communicator by Break, which only writes down the reason
// and wakes all. The thread (nccl_thread.h) then stops the device. Callers wait
// for that for at most abort_timeout longer: after that the device is stuck,
// every call returns, nothing is freed, and only the end of the process helps.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_QUEUE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_QUEUE_H_

#include <atomic>
#include <deque>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/nccl/nccl_api.h"

namespace lockstep::worker::collective::nccl {

struct NcclEngineOptions {
  int rank = 0;
  int size = 1;
  int device = 0;
  std::string label;
  Duration operation_timeout = std::chrono::seconds(30);
  Duration abort_timeout = std::chrono::seconds(10);
  MonoTime forming_deadline;
  ncclUniqueId id;
  std::shared_ptr<const std::atomic<bool>> cancelled;
};

struct NcclTask {
  // For a sum of squares only the slice counts: it is the result.
  Operation operation;
  const float* squares_of = nullptr;  // on the device, or null
  size_t squares_count = 0;
  void* data = nullptr;         // where NCCL works, from the first element
  void* host = nullptr;         // where the slice is on the host, or null
  cudaEvent_t after = nullptr;  // what it must follow, or null
  cudaEvent_t end = nullptr;    // once launched
  // All under NcclQueue's lock.
  MonoTime deadline;  // of what it follows; once launched, its own
  MonoTime began;
  MonoTime ended;
  bool done = false;
  Status status;
};
using NcclTasks = std::deque<std::shared_ptr<NcclTask>>;

// How errors call it.
std::string Describe(const NcclTask& task);
// The error of a task that is late. Only the peers can be to blame for an
// operation, and only this rank for a sum of squares.
Status LateStatus(const std::string& label, const NcclTask& task,
                  std::string_view how);
// OK, or what CUDA says about `what`.
Status CudaStatus(const CudaApi& cuda, const std::string& label,
                  cudaError_t error, std::string_view what);

// Safe from any thread; the calls of the second part are the thread's.
class NcclQueue {
 public:
  // `options` outlive it.
  explicit NcclQueue(const NcclEngineOptions& options) : options_(options) {}

  // For callers. --------------------------------------------------------------

  // Waits until the communicator is formed, has failed, or was found stuck.
  Status WaitUntilFormed();
  // The reason of the first Break, or OK.
  Status status();
  // Appends the task, unless `ready` is an error. An error: that one, or the
  // communicator is broken; the task's events are given back.
  Status Push(std::shared_ptr<NcclTask> task, const Status& ready);
  // An event that was given back, or null. An error: the communicator is
  // broken.
  StatusOr<cudaEvent_t> TakeEvent();
  // A deadline that passes breaks the communicator.
  Status Wait(NcclTask* task, MonoTime deadline);
  Status WaitForEnd(NcclTask* task);
  bool IsDone(NcclTask* task);
  // REQUIRES: it is done. No value: it did not run.
  std::optional<Work::Span> Ran(const NcclTask& task);
  // The first reason stays.
  void Break(Status reason);
  // Waits until the thread has ended everything. False: it did not, and is left
  // alone.
  bool Stop();

  // For the thread. -----------------------------------------------------------

  void SetFormed();
  // Waits for a task, or an end, for at most `most`; `idle`: the device has
  // nothing to do. False: the thread is to end.
  bool WaitForWork(Duration most, bool idle);
  // Waits for at most `idle` for a task; where one waits for a stream, for at
  // most `following`.
  void Pause(Duration idle, Duration following);
  // The first task and its deadline, or null.
  std::pair<std::shared_ptr<NcclTask>, MonoTime> Front();
  // The first task is launched: from now on it has its own deadline.
  void PopFront();
  MonoTime DeadlineOf(const NcclTask& task);
  void Finish(NcclTask* task);
  // Ends what waits, and what is in `launched`, with the reason of the end.
  // `stuck`: from now on that is that the device does not stop.
  void FailAll(std::initializer_list<NcclTasks*> launched, bool stuck);
  // When the communicator broke; nothing while it is whole.
  std::optional<MonoTime> broken_at();
  // The device has stopped. Waits until the owner lets the communicator go.
  // Returns all events, for the caller to destroy.
  std::vector<cudaEvent_t> WaitForStop();
  void SetOver();

 private:
  void GiveBackEvents(NcclTask* task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Until when the device may take to stop.
  MonoTime EndOfAbort() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status StuckStatus() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const NcclEngineOptions& options_;
  Mutex mu_;
  CondVar queued_;   // for the thread
  CondVar changed_;  // for callers
  NcclTasks queue_ ABSL_GUARDED_BY(mu_);
  std::vector<cudaEvent_t> events_ ABSL_GUARDED_BY(mu_);  // to be used again
  Status broken_ ABSL_GUARDED_BY(mu_);
  MonoTime broken_at_ ABSL_GUARDED_BY(mu_);
  bool formed_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool dissolved_ ABSL_GUARDED_BY(mu_) = false;  // the device has stopped
  bool over_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lockstep::worker::collective::nccl

#endif  // LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_QUEUE_H_
