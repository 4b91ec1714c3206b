// How the engine's thread begins and ends: forming, and the way down.
#include <thread>

#include "worker/collective/nccl/nccl_engine.h"
#include "worker/collective/nccl/nccl_squares.h"

namespace lockstep {
namespace {

using std::chrono::microseconds;

}  // namespace

Status NcclEngine::Form() {
  constexpr char kWhat[] = "forming with NCCL";
  LOCKSTEP_RETURN_IF_ERROR(
      CudaStatus(api_.cuda.set_device(options_.device), "choosing the GPU"));
  for (Lane* const lane : {&operations_, &squares_}) {
    LOCKSTEP_RETURN_IF_ERROR(
        CudaStatus(api_.cuda.create_stream(&lane->stream), "making a stream"));
  }
  LOCKSTEP_RETURN_IF_ERROR(CudaStatus(
      api_.cuda.allocate(&word_, sizeof(int32_t)), "allocating a word"));
  LOCKSTEP_RETURN_IF_ERROR(
      CudaStatus(api_.cuda.clear(word_, sizeof(int32_t)), "clearing a word"));
  LOCKSTEP_RETURN_IF_ERROR(CudaStatus(
      api_.cuda.allocate(&partials_, kSquaresPartials * sizeof(double)),
      "allocating for sums"));
  LOCKSTEP_RETURN_IF_ERROR(
      CudaStatus(api_.cuda.spare_captures(), "sparing captures"));
  LOCKSTEP_RETURN_IF_ERROR(LoadKernels());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = options_.label.c_str();
  LOCKSTEP_RETURN_IF_ERROR(
      NcclStatus(api_.nccl.init(&comm_, options_.size, options_.id,
                                options_.rank, &config),
                 kWhat));
  idle_looks_ = 0;
  return Settle(options_.forming_deadline, kWhat);
}

// CUDA loads a kernel when it is first launched, and may wait for all that runs
// on the GPU to do so: not within a step. And here a GPU is found for which the
// module has none.
Status NcclEngine::LoadKernels() {
  auto* const words = static_cast<double*>(partials_);
  const cudaError_t launched =
      api_.cuda.sum_of_squares(nullptr, 0, words, words, squares_.stream);
  if (launched != cudaSuccess) {
    return FailedPrecondition(
        "{}: backend nccl has no kernel that this GPU can run: CUDA says: {}",
        options_.label, api_.cuda.describe(launched));
  }
  if (WaitUntilIdle(options_.forming_deadline)) return OkStatus();
  return DeadlineExceeded("{}: the GPU did not run a kernel in time",
                          options_.label);
}

bool NcclEngine::Revoke(MonoTime deadline) {
  if (api_.nccl.revoke == nullptr) return false;
  const ncclResult_t revoked = api_.nccl.revoke(comm_, NCCL_REVOKE_DEFAULT);
  if (revoked != ncclSuccess && revoked != ncclInProgress) return false;
  for (;;) {
    ncclResult_t state = ncclSuccess;
    if (api_.nccl.get_async_error(comm_, &state) != ncclSuccess) return false;
    if (state != ncclInProgress) return state == ncclSuccess;
    if (MonotonicNow() >= deadline) return false;
    std::this_thread::sleep_for(microseconds(50));
  }
}

void NcclEngine::FinishAndDestroy(MonoTime deadline) {
  // Until the peers have finished too, for some may still be in the last
  // operation; a peer that never does must not hold this one for ever.
  const ncclResult_t finalized = api_.nccl.finalize(comm_);
  if ((finalized == ncclSuccess || finalized == ncclInProgress) &&
      Settle(deadline, "leaving").ok()) {
    (void)api_.nccl.destroy(comm_);
  } else {
    (void)api_.nccl.abort(comm_);
  }
}

bool NcclEngine::WaitUntilIdle(MonoTime deadline) {
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

void NcclEngine::Dissolve() {
  if (comm_ == nullptr) return;
  bool broken = false;
  MonoTime begin = MonotonicNow();
  {
    MutexLock lock(&mu_);
    broken = !broken_.ok();
    if (broken) begin = broken_at_;
  }
  const MonoTime half = begin + options_.abort_timeout / 2;
  if (!broken) return FinishAndDestroy(half);
  // Once what runs has stopped, nobody needs to wait for the freeing.
  if (Revoke(half) && WaitUntilIdle(half)) FailAll();
  (void)api_.nccl.abort(comm_);
}

void NcclEngine::WaitForStop() {
  MutexLock lock(&mu_);
  dissolved_ = true;
  changed_.NotifyAll();
  // Buffers are their owner's until it lets the communicator go.
  while (!stopping_) queued_.Wait(&mu_);
}

void NcclEngine::Free() {
  memory_.Free();
  for (void* const memory : {word_, partials_}) {
    if (memory != nullptr) (void)api_.cuda.free(memory);
  }
  MutexLock lock(&mu_);
  for (const cudaEvent_t event : events_) (void)api_.cuda.destroy_event(event);
  events_.clear();
  for (const Lane* const lane : {&operations_, &squares_}) {
    if (lane->stream != nullptr) (void)api_.cuda.destroy_stream(lane->stream);
  }
  over_ = true;
  changed_.NotifyAll();
}

}  // namespace lockstep
