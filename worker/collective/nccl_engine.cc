// What callers see of the engine; its thread is in nccl_thread.cc and
// nccl_life.cc.
#include "worker/collective/nccl_engine.h"

#include <utility>

#include "worker/collective/operation.h"

namespace lockstep {
namespace {

MonoTime Now() { return SystemClock().Now().mono; }

// Between the end of a wait and the thread's having said so.
constexpr Duration kSlack = std::chrono::milliseconds(250);

}  // namespace

NcclEngine::NcclEngine(NcclEngineOptions options, const GpuApi& api)
    : options_(std::move(options)),
      api_(api),
      memory_(api.cuda, options_.device) {}

MonoTime NcclEngine::EndOfAbort() {
  return broken_at_ + options_.abort_timeout + kSlack;
}

Status NcclEngine::StuckStatus() {
  return DeadlineExceeded(
      "{}; then the GPU did not stop within {:.1f} s: only the end of this "
      "process frees it",
      Message(broken_),
      std::chrono::duration<double>(options_.abort_timeout).count());
}

Status NcclEngine::WaitUntilFormed() {
  {
    MutexLock lock(&mu_);
    // The thread has the same deadline and cleans up after itself.
    while (!formed_ &&
           changed_.WaitUntil(&mu_, options_.forming_deadline + kSlack)) {
    }
    if (formed_ && broken_.ok()) return OkStatus();
  }
  Break(DeadlineExceeded("{}: NCCL did not connect the ranks in time",
                         options_.label));
  MutexLock lock(&mu_);
  while (!dissolved_ && changed_.WaitUntil(&mu_, EndOfAbort())) {
  }
  return dissolved_ ? broken_ : StuckStatus();
}

StatusOr<std::shared_ptr<NcclTask>> NcclEngine::Push(const Operation& operation,
                                                     cudaStream_t after) {
  auto task = std::make_shared<NcclTask>();
  task->operation = operation;
  if (operation.kind != CollectiveKind::kBarrier) {
    Place(task.get());
    if (operation.slice.count == 0) {
      task->done = true;
      MutexLock lock(&mu_);
      LOCKSTEP_RETURN_IF_ERROR(broken_);
      return task;
    }
  }
  return Enqueue(std::move(task), after);
}

StatusOr<std::shared_ptr<NcclTask>> NcclEngine::PushSumOfSquares(
    const Slice& slice, const Slice& result, cudaStream_t after) {
  auto task = std::make_shared<NcclTask>();
  task->operation.slice = result;
  Place(task.get());
  task->squares_of =
      static_cast<const float*>(memory_.MirrorOf(slice.buffer)) + slice.offset;
  task->squares_count = slice.count;
  return Enqueue(std::move(task), after);
}

Status NcclEngine::Clear(const Slice& slice, cudaStream_t stream) {
  {
    // As in Allocate.
    MutexLock lock(&mu_);
    LOCKSTEP_RETURN_IF_ERROR(broken_);
  }
  const size_t bytes = SizeOf(slice.type);
  LOCKSTEP_RETURN_IF_ERROR(
      CudaStatus(api_.cuda.set_device(options_.device), "choosing the GPU"));
  return CudaStatus(
      api_.cuda.clear_on(static_cast<char*>(memory_.MirrorOf(slice.buffer)) +
                             slice.offset * bytes,
                         slice.count * bytes, stream),
      "clearing memory");
}

void NcclEngine::Place(NcclTask* task) {
  const Slice& slice = task->operation.slice;
  const size_t skipped = slice.offset * SizeOf(slice.type);
  task->data = static_cast<char*>(memory_.MirrorOf(slice.buffer)) + skipped;
  if (slice.buffer->kind == MemoryKind::kHost) {
    task->host = static_cast<char*>(slice.buffer->data) + skipped;
  }
}

StatusOr<std::shared_ptr<NcclTask>> NcclEngine::Enqueue(
    std::shared_ptr<NcclTask> task, cudaStream_t after) {
  // Without the lock: whoever waits inside of CUDA must not hold up an abort.
  LOCKSTEP_ASSIGN_OR_RETURN(task->end, TakeEvent());
  if (after != nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(task->after, TakeEvent());
    LOCKSTEP_RETURN_IF_ERROR(CudaStatus(
        api_.cuda.record_event(task->after, after), "recording an event"));
  }
  task->deadline = Now() + options_.operation_timeout;
  MutexLock lock(&mu_);
  if (!broken_.ok()) {
    events_.push_back(task->end);
    if (after != nullptr) events_.push_back(task->after);
    return broken_;
  }
  queue_.push_back(task);
  queued_.NotifyOne();
  return task;
}

StatusOr<cudaEvent_t> NcclEngine::TakeEvent() {
  {
    MutexLock lock(&mu_);
    LOCKSTEP_RETURN_IF_ERROR(broken_);
    if (!events_.empty()) {
      const cudaEvent_t event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(
      CudaStatus(api_.cuda.set_device(options_.device), "choosing the GPU"));
  cudaEvent_t event = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(
      CudaStatus(api_.cuda.create_event(&event), "making an event"));
  return event;
}

Status NcclEngine::Wait(NcclTask* task, MonoTime deadline) {
  {
    MutexLock lock(&mu_);
    while (!task->done && broken_.ok() && changed_.WaitUntil(&mu_, deadline)) {
    }
    if (task->done) return task->status;
  }
  Break(DeadlineExceeded("{}: {} did not end before its deadline",
                         options_.label, Describe(task->operation)));
  // The thread ends the task as soon as the device has stopped.
  MutexLock lock(&mu_);
  while (!task->done && changed_.WaitUntil(&mu_, EndOfAbort())) {
  }
  return task->done ? task->status : StuckStatus();
}

Status NcclEngine::WaitForEnd(NcclTask* task) {
  // The thread ends the operation at its own deadline, unless it is stuck.
  return Wait(task, task->deadline + kSlack);
}

bool NcclEngine::IsDone(NcclTask* task) {
  MutexLock lock(&mu_);
  return task->done;
}

bool NcclEngine::IsBroken() {
  MutexLock lock(&mu_);
  return !broken_.ok();
}

void NcclEngine::Break(Status reason) {
  MutexLock lock(&mu_);
  if (!broken_.ok()) return;
  broken_ = std::move(reason);
  broken_at_ = Now();
  queued_.NotifyAll();
  changed_.NotifyAll();
}

bool NcclEngine::Stop() {
  MutexLock lock(&mu_);
  stopping_ = true;
  queued_.NotifyAll();
  const MonoTime start = broken_.ok() ? Now() : broken_at_;
  // In good order the peers are waited for first, as long as it may take.
  const MonoTime deadline =
      start + options_.abort_timeout + options_.abort_timeout / 2 + kSlack;
  while (!over_ && changed_.WaitUntil(&mu_, deadline)) {
  }
  return over_;
}

StatusOr<const Buffer*> NcclEngine::Allocate(size_t bytes, MemoryKind kind) {
  {
    // While NCCL is cut, no thread may wait inside of CUDA.
    MutexLock lock(&mu_);
    LOCKSTEP_RETURN_IF_ERROR(broken_);
  }
  auto buffer = memory_.Allocate(bytes, kind);
  if (!buffer.ok()) return Annotate(buffer.status(), options_.label);
  return buffer;
}

Status NcclEngine::CudaStatus(cudaError_t error, std::string_view what) const {
  if (error == cudaSuccess) return OkStatus();
  return Internal("{}: {}: CUDA says: {}", options_.label, what,
                  api_.cuda.describe(error));
}

Status NcclEngine::NcclStatus(ncclResult_t result,
                              std::string_view what) const {
  if (result == ncclSuccess || result == ncclInProgress) return OkStatus();
  const char* more = comm_ == nullptr ? nullptr : api_.nccl.last_error(comm_);
  const std::string text = fmt::format(
      "{}: {}: NCCL says: {}{}{}", options_.label, what,
      api_.nccl.describe(result), more != nullptr && *more != '\0' ? ": " : "",
      more == nullptr ? "" : more);
  // The two that a peer's end causes.
  if (result == ncclRemoteError || result == ncclSystemError) {
    return Unavailable("{} (a peer is gone, or the network)", text);
  }
  return Internal("{}", text);
}

}  // namespace lockstep
