// How the thread begins and ends: forming, and the way down.
#include <optional>
#include <thread>

#include "worker/collective/nccl/nccl_kernels.h"
#include "worker/collective/nccl/nccl_thread.h"

namespace lockstep::worker::collective::nccl {
namespace {

using std::chrono::microseconds;

}  // namespace

Status NcclThread::Form() {
  constexpr char kWhat[] = "forming with NCCL";
  LOCKSTEP_RETURN_IF_ERROR(
      CudaError(api_.cuda.set_device(options_.device), "choosing the GPU"));
  for (Lane* const lane : {&operations_, &squares_}) {
    LOCKSTEP_RETURN_IF_ERROR(
        CudaError(api_.cuda.create_stream(&lane->stream), "making a stream"));
  }
  LOCKSTEP_RETURN_IF_ERROR(CudaError(
      api_.cuda.allocate(&word_, sizeof(int32_t)), "allocating a word"));
  LOCKSTEP_RETURN_IF_ERROR(
      CudaError(api_.cuda.clear_on(word_, sizeof(int32_t), operations_.stream),
                "clearing a word"));
  LOCKSTEP_RETURN_IF_ERROR(CudaError(
      api_.cuda.allocate(&partials_, kSquaresPartials * sizeof(double)),
      "allocating for sums"));
  LOCKSTEP_RETURN_IF_ERROR(
      CudaError(api_.cuda.spare_captures(), "sparing captures"));
  LOCKSTEP_RETURN_IF_ERROR(LoadKernels());
  LOCKSTEP_RETURN_IF_ERROR(comm_.Init());
  idle_looks_ = 0;
  return Settle(options_.forming_deadline, kWhat);
}

// CUDA loads a kernel when it is first launched, and may wait for all that runs
// on the GPU to do so: not within a step. And here a GPU is found for which the
// module has none.
Status NcclThread::LoadKernels() {
  auto* const words = static_cast<double*>(partials_);
  cudaError_t launched =
      api_.cuda.sum_of_squares(nullptr, 0, words, words, squares_.stream);
  if (launched == cudaSuccess) {
    launched = api_.cuda.add(nullptr, nullptr, 0, squares_.stream);
  }
  if (launched != cudaSuccess) {
    return FailedPrecondition(
        "{}: backend nccl has no kernel that this GPU can run: CUDA says: {}",
        options_.label, api_.cuda.describe(launched));
  }
  if (WaitUntilIdle(options_.forming_deadline)) return OkStatus();
  return DeadlineExceeded("{}: the GPU did not run a kernel in time",
                          options_.label);
}

// Until the peers have finished too, for some may still be in the last
// operation; a peer that never does must not hold this one for ever.
void NcclThread::FinishAndDestroy(MonoTime deadline) {
  if (comm_.Finalize() && Settle(deadline, "leaving").ok()) {
    comm_.Destroy();
  } else {
    comm_.Abort();
  }
}

bool NcclThread::WaitUntilIdle(MonoTime deadline) {
  const auto is_idle = [this](const Lane& lane) {
    // An error is an end too: nothing runs any more.
    return lane.stream == nullptr ||
           api_.cuda.query_stream(lane.stream) != cudaErrorNotReady;
  };
  for (;;) {
    if (is_idle(operations_) && is_idle(squares_)) return true;
    if (MonotonicNow() >= deadline) return false;
    std::this_thread::sleep_for(microseconds(50));
  }
}

void NcclThread::Dissolve() {
  if (!comm_.exists()) return;
  const std::optional<MonoTime> broken_at = queue_.broken_at();
  const MonoTime half =
      broken_at.value_or(MonotonicNow()) + options_.abort_timeout / 2;
  if (!broken_at) return FinishAndDestroy(half);
  // Once what runs has stopped, no caller needs to wait for the freeing.
  if (comm_.Revoke(half) && WaitUntilIdle(half)) FailAll();
  comm_.Abort();
}

void NcclThread::Free(const std::vector<cudaEvent_t>& events) {
  memory_.Free();
  for (void* const memory : {word_, partials_}) {
    if (memory != nullptr) (void)api_.cuda.free(memory);
  }
  for (const cudaEvent_t event : events) {
    (void)api_.cuda.destroy_event(event);
  }
  for (const Lane* const lane : {&operations_, &squares_}) {
    if (lane->stream != nullptr) (void)api_.cuda.destroy_stream(lane->stream);
  }
  queue_.SetOver();
}

void NcclThread::Run() {
  Status status = Form();
  if (!status.ok()) queue_.Break(std::move(status));
  formed_ = true;
  queue_.SetFormed();
  RunTasks();
  Dissolve();
  if (!WaitUntilIdle(MonotonicNow() + options_.abort_timeout / 2)) {
    // Never over: Stop gives up, and nothing is freed.
    return FailAll(/*stuck=*/true);
  }
  FailAll();
  Free(queue_.WaitForStop());
}

}  // namespace lockstep::worker::collective::nccl
