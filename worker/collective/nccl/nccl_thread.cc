// The thread at work: launches and polls. Its begin and end are in
// nccl_thread_end.cc.
#include "worker/collective/nccl/nccl_thread.h"

#include <algorithm>
#include <thread>

#include "worker/collective/operation.h"

namespace lockstep::worker::collective::nccl {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// An idle communicator looks for errors as often.
constexpr Duration kIdleLook = milliseconds(100);

// The bytes of the slice that this rank must bring, or gets.
struct Part {
  size_t offset = 0;
  size_t bytes = 0;
};

Part OwnPart(const Operation& operation, int rank, int size) {
  const size_t bytes = BytesOf(operation) / size;
  return {.offset = rank * bytes, .bytes = bytes};
}

Part Brings(const Operation& operation, int rank, int size) {
  switch (operation.kind) {
    case CollectiveKind::kAllGather:
      return OwnPart(operation, rank, size);
    case CollectiveKind::kBroadcast:
      return {.offset = 0,
              .bytes = operation.root == rank ? BytesOf(operation) : 0};
    default:
      return {.offset = 0, .bytes = BytesOf(operation)};
  }
}

Part Gets(const Operation& operation, int rank, int size) {
  switch (operation.kind) {
    case CollectiveKind::kReduceScatter:
      return OwnPart(operation, rank, size);
    case CollectiveKind::kBroadcast:
      return {.offset = 0,
              .bytes = operation.root == rank ? 0 : BytesOf(operation)};
    default:
      return {.offset = 0, .bytes = BytesOf(operation)};
  }
}

}  // namespace

void NcclThread::Pause() {
  // An operation takes from some microseconds to some milliseconds.
  if (++idle_looks_ < 200) {
    std::this_thread::yield();
    return;
  }
  const int longer = std::min(idle_looks_ / 200, 25);
  // What follows a stream are perhaps the last gradients of a step: nothing
  // hides what is lost here.
  queue_.Pause(microseconds(20 * longer), microseconds(50));
}

Status NcclThread::Settle(MonoTime deadline, std::string_view what) {
  for (;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool busy, comm_.Busy(what));
    if (!busy) return OkStatus();
    LOCKSTEP_RETURN_IF_ERROR(LaunchSquares());
    LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
    if (queue_.broken_at()) {
      return Aborted("{}: {} was cut", options_.label, what);
    }
    if (MonotonicNow() >= deadline) {
      return DeadlineExceeded("{}: {} did not end in time", options_.label,
                              what);
    }
    Pause();
  }
}

Status NcclThread::CheckCancelled() const {
  const bool cancelled =
      !formed_ && options_.cancelled != nullptr && options_.cancelled->load();
  if (!cancelled) return OkStatus();
  return Aborted("{}: the ranks form no longer", options_.label);
}

void NcclThread::RunTasks() {
  for (;;) {
    if (!queue_.WaitForWork(kIdleLook, Idle())) return;
    const auto next = TakeReady(nullptr);
    Status status = next.status();
    const bool launches = status.ok() && *next != nullptr;
    if (launches) {
      idle_looks_ = 0;
      status = Launch(next->get());
    }
    if (status.ok()) status = Look();
    if (!status.ok()) return queue_.Break(std::move(status));
    if (!launches) Pause();
  }
}

StatusOr<std::shared_ptr<NcclTask>> NcclThread::TakeReady(const Lane* only) {
  const auto [head, deadline] = queue_.Front();
  if (head == nullptr) return head;
  const std::shared_ptr<NcclTask> none;
  Lane* const lane = LaneOf(*head);
  if (only != nullptr && lane != only) return none;
  if (head->after != nullptr) {
    const cudaError_t reached = api_.cuda.query_event(head->after);
    if (reached == cudaErrorNotReady) {
      if (MonotonicNow() < deadline) return none;
      return Internal(
          "{}: the stream that {} follows did not come so far in {:.0f} s: the "
          "GPU is slow, or stuck",
          options_.label, Describe(*head),
          ToSeconds(kStreamPatience * options_.operation_timeout));
    }
    LOCKSTEP_RETURN_IF_ERROR(CudaError(reached, Describe(*head)));
  }
  lane->in_flight.push_back(head);
  queue_.PopFront();
  return head;
}

// While an operation connects, which can wait for the peers.
Status NcclThread::LaunchSquares() {
  for (;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto next, TakeReady(&squares_));
    if (next == nullptr) return LookAt(&squares_);
    LOCKSTEP_RETURN_IF_ERROR(Launch(next.get()));
  }
}

Status NcclThread::Launch(NcclTask* task) {
  const std::string what = Describe(*task);
  const cudaStream_t stream = LaneOf(*task)->stream;
  if (task->squares_of == nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(LaunchOperation(task));
  } else {
    LOCKSTEP_RETURN_IF_ERROR(CudaError(
        api_.cuda.sum_of_squares(task->squares_of, task->squares_count,
                                 static_cast<double*>(partials_),
                                 static_cast<double*>(task->data), stream),
        what));
  }
  LOCKSTEP_RETURN_IF_ERROR(StageOut(*task, stream));
  return CudaError(api_.cuda.record_event(task->end, stream), what);
}

Status NcclThread::LaunchOperation(NcclTask* task) {
  // The last one has followed those before it.
  if (!squares_.in_flight.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(
        CudaError(api_.cuda.wait_event(operations_.stream,
                                       squares_.in_flight.back()->end),
                  Describe(*task)));
  }
  LOCKSTEP_RETURN_IF_ERROR(StageIn(*task));
  LOCKSTEP_RETURN_IF_ERROR(
      comm_.Launch(task->operation, task->data, word_, operations_.stream));
  // Not on the stream before: the event of its end would come too early. The
  // first operation connects, so this can wait for the peers.
  return Settle(queue_.DeadlineOf(*task), Describe(*task));
}

Status NcclThread::StageIn(const NcclTask& task) {
  if (task.host == nullptr) return OkStatus();
  const Part part = Brings(task.operation, options_.rank, options_.size);
  if (part.bytes == 0) return OkStatus();
  return CudaError(
      api_.cuda.copy(static_cast<char*>(task.data) + part.offset,
                     static_cast<const char*>(task.host) + part.offset,
                     part.bytes, cudaMemcpyHostToDevice, operations_.stream),
      "copying to the GPU");
}

Status NcclThread::StageOut(const NcclTask& task, cudaStream_t stream) {
  if (task.host == nullptr) return OkStatus();
  const Part part = Gets(task.operation, options_.rank, options_.size);
  if (part.bytes == 0) return OkStatus();
  return CudaError(
      api_.cuda.copy(static_cast<char*>(task.host) + part.offset,
                     static_cast<const char*>(task.data) + part.offset,
                     part.bytes, cudaMemcpyDeviceToHost, stream),
      "copying from the GPU");
}

Status NcclThread::Look() {
  const auto& operations = operations_.in_flight;
  LOCKSTEP_RETURN_IF_ERROR(
      comm_.Busy(operations.empty() ? "waiting" : Describe(*operations.front()))
          .status());
  LOCKSTEP_RETURN_IF_ERROR(LookAt(&squares_));
  return LookAt(&operations_);
}

Status NcclThread::LookAt(Lane* lane) {
  while (!lane->in_flight.empty()) {
    const std::shared_ptr<NcclTask> task = lane->in_flight.front();
    const cudaError_t ended = api_.cuda.query_event(task->end);
    if (ended == cudaErrorNotReady) {
      if (MonotonicNow() < queue_.DeadlineOf(*task)) return OkStatus();
      return LateStatus(options_.label, *task, "did not end in time");
    }
    LOCKSTEP_RETURN_IF_ERROR(CudaError(ended, Describe(*task)));
    lane->in_flight.pop_front();
    queue_.Finish(task.get());
    idle_looks_ = 0;
  }
  return OkStatus();
}

}  // namespace lockstep::worker::collective::nccl
