// The engine's thread at work: launches and polls. Its begin and end are in
// nccl_life.cc.
#include <algorithm>
#include <thread>

#include "worker/collective/nccl/nccl_engine.h"
#include "worker/collective/operation.h"

namespace lockstep {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// An idle communicator looks for errors as often.
constexpr Duration kIdleLook = milliseconds(100);

ncclDataType_t TypeOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return ncclFloat32;
    case DataType::kFloat64:
      return ncclFloat64;
    case DataType::kFloat16:
      return ncclFloat16;
    case DataType::kBfloat16:
      return ncclBfloat16;
    case DataType::kInt32:
      return ncclInt32;
    case DataType::kInt64:
      return ncclInt64;
    case DataType::kUint8:
      return ncclUint8;
  }
  return ncclNumTypes;
}

ncclRedOp_t OpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMean:
      return ncclAvg;
    case ReduceOp::kMax:
      return ncclMax;
  }
  return ncclSum;
}

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

void NcclEngine::Run(const std::shared_ptr<NcclEngine>& engine) {
  Status status = engine->Form();
  if (!status.ok()) engine->Break(std::move(status));
  {
    MutexLock lock(&engine->mu_);
    engine->formed_ = true;
    engine->changed_.NotifyAll();
  }
  engine->RunTasks();
  engine->Dissolve();
  if (!engine->WaitUntilIdle(MonotonicNow() +
                             engine->options_.abort_timeout / 2)) {
    {
      // Never over: Stop gives up, and nothing is freed.
      MutexLock lock(&engine->mu_);
      engine->broken_ = engine->StuckStatus();
    }
    engine->FailAll();
    return;
  }
  engine->FailAll();
  engine->WaitForStop();
  engine->Free();
}

void NcclEngine::Pause() {
  // An operation takes from some microseconds to some milliseconds.
  if (++idle_looks_ < 200) {
    std::this_thread::yield();
    return;
  }
  const int longer = std::min(idle_looks_ / 200, 25);
  MutexLock lock(&mu_);
  if (queue_.empty()) {
    queued_.WaitFor(&mu_, microseconds(20 * longer));
  } else if (queue_.front()->after != nullptr) {
    // Perhaps the last gradients of a step: nothing hides what is lost here.
    queued_.WaitFor(&mu_, microseconds(50));
  }
}

Status NcclEngine::Settle(MonoTime deadline, std::string_view what) {
  for (;;) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = api_.nccl.get_async_error(comm_, &state);
    LOCKSTEP_RETURN_IF_ERROR(NcclStatus(asked, what));
    if (state != ncclInProgress) return NcclStatus(state, what);
    LOCKSTEP_RETURN_IF_ERROR(LaunchSquares());
    if (IsBroken()) return Aborted("{}: {} was cut", options_.label, what);
    if (MonotonicNow() >= deadline) {
      return DeadlineExceeded("{}: {} did not end in time", options_.label,
                              what);
    }
    Pause();
  }
}

void NcclEngine::RunTasks() {
  for (;;) {
    {
      MutexLock lock(&mu_);
      if (queue_.empty() && Idle() && !stopping_ && broken_.ok()) {
        queued_.WaitFor(&mu_, kIdleLook);
      }
      if (!broken_.ok() || (queue_.empty() && Idle() && stopping_)) return;
    }
    const auto next = TakeReady(nullptr);
    Status status = next.status();
    const bool launches = status.ok() && *next != nullptr;
    if (launches) {
      idle_looks_ = 0;
      status = Launch(next->get());
    }
    if (status.ok()) status = Look();
    if (!status.ok()) return Break(std::move(status));
    if (!launches) Pause();
  }
}

StatusOr<std::shared_ptr<NcclTask>> NcclEngine::TakeReady(const Lane* only) {
  std::shared_ptr<NcclTask> head;
  MonoTime deadline;
  {
    MutexLock lock(&mu_);
    if (queue_.empty()) return head;
    head = queue_.front();
    deadline = head->deadline;
  }
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
    LOCKSTEP_RETURN_IF_ERROR(CudaStatus(reached, Describe(*head)));
  }
  lane->in_flight.push_back(head);
  MutexLock lock(&mu_);
  queue_.pop_front();
  head->began = MonotonicNow();
  head->deadline = head->began + options_.operation_timeout;
  return head;
}

// While an operation connects, which can wait for the peers.
Status NcclEngine::LaunchSquares() {
  for (;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto next, TakeReady(&squares_));
    if (next == nullptr) return LookAt(&squares_);
    LOCKSTEP_RETURN_IF_ERROR(Launch(next.get()));
  }
}

Status NcclEngine::Launch(NcclTask* task) {
  const std::string what = Describe(*task);
  const cudaStream_t stream = LaneOf(*task)->stream;
  if (task->squares_of == nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(LaunchOperation(task));
  } else {
    LOCKSTEP_RETURN_IF_ERROR(CudaStatus(
        api_.cuda.sum_of_squares(task->squares_of, task->squares_count,
                                 static_cast<double*>(partials_),
                                 static_cast<double*>(task->data), stream),
        what));
  }
  LOCKSTEP_RETURN_IF_ERROR(StageOut(*task, stream));
  return CudaStatus(api_.cuda.record_event(task->end, stream), what);
}

Status NcclEngine::LaunchOperation(NcclTask* task) {
  // The last one has followed those before it.
  if (!squares_.in_flight.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(
        CudaStatus(api_.cuda.wait_event(operations_.stream,
                                        squares_.in_flight.back()->end),
                   Describe(*task)));
  }
  LOCKSTEP_RETURN_IF_ERROR(StageIn(*task));
  LOCKSTEP_RETURN_IF_ERROR(Call(*task));
  // Not on the stream before: the event of its end would come too early. The
  // first operation connects, so this can wait for the peers.
  return Settle(DeadlineOf(*task), Describe(*task));
}

Status NcclEngine::StageIn(const NcclTask& task) {
  if (task.host == nullptr) return OkStatus();
  const Part part = Brings(task.operation, options_.rank, options_.size);
  if (part.bytes == 0) return OkStatus();
  return CudaStatus(
      api_.cuda.copy(static_cast<char*>(task.data) + part.offset,
                     static_cast<const char*>(task.host) + part.offset,
                     part.bytes, cudaMemcpyHostToDevice, operations_.stream),
      "copying to the GPU");
}

Status NcclEngine::StageOut(const NcclTask& task, cudaStream_t stream) {
  if (task.host == nullptr) return OkStatus();
  const Part part = Gets(task.operation, options_.rank, options_.size);
  if (part.bytes == 0) return OkStatus();
  return CudaStatus(
      api_.cuda.copy(static_cast<char*>(task.host) + part.offset,
                     static_cast<const char*>(task.data) + part.offset,
                     part.bytes, cudaMemcpyDeviceToHost, stream),
      "copying from the GPU");
}

Status NcclEngine::Call(const NcclTask& task) {
  const Operation& operation = task.operation;
  const Slice& slice = operation.slice;
  const ncclDataType_t type = TypeOf(slice.type);
  const ncclRedOp_t op = OpOf(operation.op);
  const size_t part = slice.count / options_.size;
  char* const data = static_cast<char*>(task.data);
  char* const own = data + options_.rank * part * SizeOf(slice.type);
  const cudaStream_t stream = operations_.stream;
  const auto call = [&] {
    switch (operation.kind) {
      case CollectiveKind::kAllReduce:
        return api_.nccl.all_reduce(data, data, slice.count, type, op, comm_,
                                    stream);
      case CollectiveKind::kReduceScatter:
        return api_.nccl.reduce_scatter(data, own, part, type, op, comm_,
                                        stream);
      case CollectiveKind::kAllGather:
        return api_.nccl.all_gather(own, data, part, type, comm_, stream);
      case CollectiveKind::kBroadcast:
        return api_.nccl.broadcast(data, data, slice.count, type,
                                   operation.root, comm_, stream);
      case CollectiveKind::kBarrier:
        return api_.nccl.all_reduce(word_, word_, 1, ncclInt32, ncclSum, comm_,
                                    stream);
    }
    return ncclInternalError;
  };
  return NcclStatus(call(), Describe(operation));
}

Status NcclEngine::Look() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = api_.nccl.get_async_error(comm_, &state);
  LOCKSTEP_RETURN_IF_ERROR(NcclStatus(asked, "asking for errors"));
  const auto& operations = operations_.in_flight;
  LOCKSTEP_RETURN_IF_ERROR(NcclStatus(
      state, operations.empty() ? "waiting" : Describe(*operations.front())));
  LOCKSTEP_RETURN_IF_ERROR(LookAt(&squares_));
  return LookAt(&operations_);
}

Status NcclEngine::LookAt(Lane* lane) {
  while (!lane->in_flight.empty()) {
    const std::shared_ptr<NcclTask> task = lane->in_flight.front();
    const cudaError_t ended = api_.cuda.query_event(task->end);
    if (ended == cudaErrorNotReady) {
      if (MonotonicNow() < DeadlineOf(*task)) return OkStatus();
      return LateStatus(*task, "did not end in time");
    }
    LOCKSTEP_RETURN_IF_ERROR(CudaStatus(ended, Describe(*task)));
    lane->in_flight.pop_front();
    Finish(task);
    idle_looks_ = 0;
  }
  return OkStatus();
}

void NcclEngine::Finish(const std::shared_ptr<NcclTask>& task) {
  MutexLock lock(&mu_);
  GiveBackEvents(task.get());
  task->ended = MonotonicNow();
  task->done = true;
  changed_.NotifyAll();
}

void NcclEngine::FailAll() {
  MutexLock lock(&mu_);
  for (auto* tasks : {&operations_.in_flight, &squares_.in_flight, &queue_}) {
    for (const auto& task : *tasks) {
      GiveBackEvents(task.get());
      task->status = broken_;
      task->done = true;
    }
    tasks->clear();
  }
  changed_.NotifyAll();
}

}  // namespace lockstep
