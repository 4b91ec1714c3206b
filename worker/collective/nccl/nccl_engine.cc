#include "worker/collective/nccl/nccl_engine.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "worker/collective/nccl/nccl_thread.h"

namespace lockstep::worker::collective::nccl {
namespace {

// A chunk of a state takes some hundred microseconds.
constexpr Duration kCopyLook = std::chrono::microseconds(20);

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

NcclEngine::NcclEngine(NcclEngineOptions options, const GpuApi& api,
                       std::shared_ptr<NcclKeptMemory> kept)
    : options_(std::move(options)),
      api_(api),
      memory_(api.cuda, options_.device, std::move(kept)),
      queue_(options_) {}

void NcclEngine::Run(const std::shared_ptr<NcclEngine>& engine) {
  NcclThread(engine->options_, engine->api_, &engine->memory_, &engine->queue_)
      .Run();
}

StatusOr<std::shared_ptr<NcclTask>> NcclEngine::Push(const Operation& operation,
                                                     cudaStream_t after) {
  auto task = std::make_shared<NcclTask>();
  task->operation = operation;
  if (operation.kind != CollectiveKind::kBarrier) {
    Place(task.get());
    if (operation.slice.count == 0) {
      task->done = true;
      LOCKSTEP_RETURN_IF_ERROR(queue_.status());
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
  task->squares_of = reinterpret_cast<const float*>(PlaceOf(slice));
  task->squares_count = slice.count;
  return Enqueue(std::move(task), after);
}

Status NcclEngine::Clear(const Slice& slice, cudaStream_t stream) {
  LOCKSTEP_RETURN_IF_ERROR(queue_.status());  // As in Allocate.
  const OnDevice on_device(api_.cuda, options_.device);
  LOCKSTEP_RETURN_IF_ERROR(CudaError(on_device.error(), "choosing the GPU"));
  LOCKSTEP_RETURN_IF_ERROR(CheckNotCaptured(stream));
  return CudaError(api_.cuda.clear_on(PlaceOf(slice),
                                      slice.count * SizeOf(slice.type), stream),
                   "clearing memory");
}

Status NcclEngine::Add(const Slice& to, const Slice& from,
                       cudaStream_t stream) {
  LOCKSTEP_RETURN_IF_ERROR(queue_.status());  // As in Allocate.
  const OnDevice on_device(api_.cuda, options_.device);
  LOCKSTEP_RETURN_IF_ERROR(CudaError(on_device.error(), "choosing the GPU"));
  LOCKSTEP_RETURN_IF_ERROR(CheckNotCaptured(stream));
  return CudaError(api_.cuda.add(reinterpret_cast<float*>(PlaceOf(to)),
                                 reinterpret_cast<const float*>(PlaceOf(from)),
                                 to.count, stream),
                   "adding gradients");
}

Status NcclEngine::Copy(void* to, const void* from, size_t bytes,
                        cudaMemcpyKind kind, cudaStream_t stream) {
  LOCKSTEP_RETURN_IF_ERROR(queue_.status());  // As in Allocate.
  const OnDevice on_device(api_.cuda, options_.device);
  LOCKSTEP_RETURN_IF_ERROR(CudaError(on_device.error(), "choosing the GPU"));
  LOCKSTEP_RETURN_IF_ERROR(CheckNotCaptured(stream));
  cudaEvent_t event = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(
      CudaError(api_.cuda.create_event(&event), "making an event"));
  Status status = CudaError(api_.cuda.copy(to, from, bytes, kind, stream),
                            "copying a state");
  if (status.ok()) status = WaitFor(stream, event);
  (void)api_.cuda.destroy_event(event);
  return status;
}

// An abort does not end it at once: the device may still use the memory.
Status NcclEngine::WaitFor(cudaStream_t stream, cudaEvent_t event) {
  LOCKSTEP_RETURN_IF_ERROR(
      CudaError(api_.cuda.record_event(event, stream), "recording an event"));
  const MonoTime began = MonotonicNow();
  MonoTime deadline = began + kStreamPatience * options_.operation_timeout;
  for (;;) {
    if (const auto broken_at = queue_.broken_at()) {
      deadline = std::min(deadline, *broken_at + options_.abort_timeout);
    }
    const cudaError_t reached = api_.cuda.query_event(event);
    if (reached != cudaErrorNotReady) {
      return CudaError(reached, "copying a state");
    }
    if (MonotonicNow() >= deadline) {
      return Internal(
          "{}: the stream that copies a state did not come so far in {:.0f} s: "
          "the GPU is slow, or stuck",
          options_.label, ToSeconds(MonotonicNow() - began));
    }
    std::this_thread::sleep_for(kCopyLook);
  }
}

char* NcclEngine::PlaceOf(const Slice& slice) const {
  return static_cast<char*>(memory_.MirrorOf(slice.buffer)) +
         slice.offset * SizeOf(slice.type);
}

void NcclEngine::Place(NcclTask* task) {
  const Slice& slice = task->operation.slice;
  task->data = PlaceOf(slice);
  if (slice.buffer->kind == MemoryKind::kHost) {
    task->host = static_cast<char*>(slice.buffer->data) +
                 slice.offset * SizeOf(slice.type);
  }
}

StatusOr<std::shared_ptr<NcclTask>> NcclEngine::Enqueue(
    std::shared_ptr<NcclTask> task, cudaStream_t after) {
  const Status ready = TakeEvents(task.get(), after);
  LOCKSTEP_RETURN_IF_ERROR(queue_.Push(task, ready));
  return task;
}

Status NcclEngine::TakeEvents(NcclTask* task, cudaStream_t after) {
  const OnDevice on_device(api_.cuda, options_.device);
  LOCKSTEP_RETURN_IF_ERROR(CudaError(on_device.error(), "choosing the GPU"));
  LOCKSTEP_ASSIGN_OR_RETURN(task->end, TakeEvent());
  if (after == nullptr) return OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(CheckNotCaptured(after));
  LOCKSTEP_ASSIGN_OR_RETURN(task->after, TakeEvent());
  return CudaError(api_.cuda.record_event(task->after, after),
                   "recording an event");
}

Status NcclEngine::CheckNotCaptured(cudaStream_t stream) const {
  bool capturing = false;
  LOCKSTEP_RETURN_IF_ERROR(CudaError(api_.cuda.is_capturing(stream, &capturing),
                                     "asking what a stream does"));
  if (!capturing) return OkStatus();
  return FailedPrecondition(
      "{}: the stream is being captured into a graph, which cannot hold what "
      "all ranks do together: capture up to here, and go on after it",
      options_.label);
}

StatusOr<cudaEvent_t> NcclEngine::TakeEvent() {
  LOCKSTEP_ASSIGN_OR_RETURN(cudaEvent_t event, queue_.TakeEvent());
  if (event != nullptr) return event;
  LOCKSTEP_RETURN_IF_ERROR(
      CudaError(api_.cuda.create_event(&event), "making an event"));
  return event;
}

StatusOr<const Buffer*> NcclEngine::Allocate(size_t bytes, MemoryKind kind) {
  // While NCCL is cut, no thread may wait inside of CUDA.
  LOCKSTEP_RETURN_IF_ERROR(queue_.status());
  const OnDevice on_device(api_.cuda, options_.device);
  auto buffer = memory_.Allocate(bytes, kind);
  if (!buffer.ok()) return Annotate(buffer.status(), options_.label);
  return buffer;
}

}  // namespace lockstep::worker::collective::nccl
