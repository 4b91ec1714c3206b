// What callers see of the engine; its thread is in nccl_thread.cc and
// nccl_life.cc.
#include "worker/collective/nccl/nccl_engine.h"

#include <utility>

#include "worker/collective/operation.h"

namespace lockstep {
namespace {

// Between the end of a wait and the thread's having said so.
constexpr Duration kSlack = std::chrono::milliseconds(250);

// The device is the calling thread's as long as this lives: streams without a
// handle of their own are those of the thread's device.
class OnDevice {
 public:
  OnDevice(const CudaApi& cuda, int device) : cuda_(cuda), device_(device) {
    error_ = cuda_.get_device(&before_);
    if (error_ == cudaSuccess && before_ != device) {
      error_ = cuda_.set_device(device);
    }
  }
  ~OnDevice() {
    if (error_ == cudaSuccess && before_ != device_) {
      (void)cuda_.set_device(before_);
    }
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  cudaError_t error() const { return error_; }

 private:
  const CudaApi& cuda_;
  const int device_;
  int before_ = 0;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace

std::string Describe(const NcclTask& task) {
  return task.squares_of == nullptr ? Describe(task.operation)
                                    : "a sum of squares on the GPU";
}

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
  const OnDevice on_device(api_.cuda, options_.device);
  LOCKSTEP_RETURN_IF_ERROR(CudaStatus(on_device.error(), "choosing the GPU"));
  LOCKSTEP_RETURN_IF_ERROR(CheckNotCaptured(stream));
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
  Status status = TakeEvents(task.get(), after);
  MutexLock lock(&mu_);
  if (status.ok()) status = broken_;
  if (!status.ok()) {
    GiveBackEvents(task.get());
    return status;
  }
  task->deadline =
      MonotonicNow() + kStreamPatience * options_.operation_timeout;
  queue_.push_back(task);
  queued_.NotifyOne();
  return task;
}

Status NcclEngine::TakeEvents(NcclTask* task, cudaStream_t after) {
  const OnDevice on_device(api_.cuda, options_.device);
  LOCKSTEP_RETURN_IF_ERROR(CudaStatus(on_device.error(), "choosing the GPU"));
  LOCKSTEP_ASSIGN_OR_RETURN(task->end, TakeEvent());
  if (after == nullptr) return OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(CheckNotCaptured(after));
  LOCKSTEP_ASSIGN_OR_RETURN(task->after, TakeEvent());
  return CudaStatus(api_.cuda.record_event(task->after, after),
                    "recording an event");
}

void NcclEngine::GiveBackEvents(NcclTask* task) {
  for (cudaEvent_t* const event : {&task->end, &task->after}) {
    if (*event != nullptr) events_.push_back(std::exchange(*event, nullptr));
  }
}

Status NcclEngine::CheckNotCaptured(cudaStream_t stream) const {
  bool capturing = false;
  LOCKSTEP_RETURN_IF_ERROR(CudaStatus(
      api_.cuda.is_capturing(stream, &capturing), "asking what a stream does"));
  if (!capturing) return OkStatus();
  return FailedPrecondition(
      "{}: the stream is being captured into a graph, which cannot hold what "
      "all ranks do together: capture up to here, and go on after it",
      options_.label);
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
  Break(LateStatus(*task, "did not end before its deadline"));
  // The thread ends the task as soon as the device has stopped.
  MutexLock lock(&mu_);
  while (!task->done && changed_.WaitUntil(&mu_, EndOfAbort())) {
  }
  return task->done ? task->status : StuckStatus();
}

Status NcclEngine::WaitForEnd(NcclTask* task) {
  {
    // The thread ends it at its deadline, which moves when it is launched,
    // unless it is stuck.
    MutexLock lock(&mu_);
    for (MonoTime until; until != task->deadline + kSlack;) {
      until = task->deadline + kSlack;
      while (!task->done && broken_.ok() && changed_.WaitUntil(&mu_, until)) {
      }
      if (task->done || !broken_.ok()) break;
    }
  }
  return Wait(task, MonoTime());
}

std::optional<Work::Span> NcclEngine::Ran(const NcclTask& task) {
  MutexLock lock(&mu_);
  if (!task.done || task.ended == MonoTime()) return std::nullopt;
  return Work::Span{task.began, task.ended};
}

MonoTime NcclEngine::DeadlineOf(const NcclTask& task) {
  MutexLock lock(&mu_);
  return task.deadline;
}

// No peer has a part in a sum of squares.
Status NcclEngine::LateStatus(const NcclTask& task,
                              std::string_view how) const {
  const std::string text =
      fmt::format("{}: {} {}", options_.label, Describe(task), how);
  return task.squares_of != nullptr ? Internal("{}", text)
                                    : DeadlineExceeded("{}", text);
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
  broken_at_ = MonotonicNow();
  queued_.NotifyAll();
  changed_.NotifyAll();
}

bool NcclEngine::Stop() {
  MutexLock lock(&mu_);
  stopping_ = true;
  queued_.NotifyAll();
  const MonoTime start = broken_.ok() ? MonotonicNow() : broken_at_;
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
  const OnDevice on_device(api_.cuda, options_.device);
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
