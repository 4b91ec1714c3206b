#include "worker/collective/nccl/nccl_queue.h"

#include <utility>

#include "worker/collective/operation.h"

namespace lockstep::worker::collective::nccl {
namespace {

// Between the end of a wait and the thread's having reported it.
constexpr Duration kSlack = std::chrono::milliseconds(250);

}  // namespace

std::string Describe(const NcclTask& task) {
  return task.squares_of == nullptr ? Describe(task.operation)
                                    : "a sum of squares on the GPU";
}

Status LateStatus(const std::string& label, const NcclTask& task,
                  std::string_view how) {
  const std::string text = fmt::format("{}: {} {}", label, Describe(task), how);
  return task.squares_of != nullptr ? Internal("{}", text)
                                    : DeadlineExceeded("{}", text);
}

Status CudaStatus(const CudaApi& cuda, const std::string& label,
                  cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return OkStatus();
  return Internal("{}: {}: CUDA says: {}", label, what, cuda.describe(error));
}

MonoTime NcclQueue::EndOfAbort() {
  return broken_at_ + options_.abort_timeout + kSlack;
}

Status NcclQueue::StuckStatus() {
  return DeadlineExceeded(
      "{}; then the GPU did not stop within {:.1f} s: only the end of this "
      "process frees it",
      Message(broken_),
      std::chrono::duration<double>(options_.abort_timeout).count());
}

Status NcclQueue::WaitUntilFormed() {
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

Status NcclQueue::status() {
  MutexLock lock(&mu_);
  return broken_;
}

Status NcclQueue::Push(std::shared_ptr<NcclTask> task, const Status& ready) {
  MutexLock lock(&mu_);
  const Status& status = ready.ok() ? broken_ : ready;
  if (!status.ok()) {
    GiveBackEvents(task.get());
    return status;
  }
  task->deadline =
      MonotonicNow() + kStreamPatience * options_.operation_timeout;
  queue_.push_back(std::move(task));
  queued_.NotifyOne();
  return OkStatus();
}

StatusOr<cudaEvent_t> NcclQueue::TakeEvent() {
  MutexLock lock(&mu_);
  LOCKSTEP_RETURN_IF_ERROR(broken_);
  if (events_.empty()) return cudaEvent_t{nullptr};
  const cudaEvent_t event = events_.back();
  events_.pop_back();
  return event;
}

void NcclQueue::GiveBackEvents(NcclTask* task) {
  for (cudaEvent_t* const event : {&task->end, &task->after}) {
    if (*event != nullptr) events_.push_back(std::exchange(*event, nullptr));
  }
}

Status NcclQueue::Wait(NcclTask* task, MonoTime deadline) {
  {
    MutexLock lock(&mu_);
    while (!task->done && broken_.ok() && changed_.WaitUntil(&mu_, deadline)) {
    }
    if (task->done) return task->status;
  }
  Break(LateStatus(options_.label, *task, "did not end before its deadline"));
  // The thread ends the task as soon as the device has stopped.
  MutexLock lock(&mu_);
  while (!task->done && changed_.WaitUntil(&mu_, EndOfAbort())) {
  }
  return task->done ? task->status : StuckStatus();
}

Status NcclQueue::WaitForEnd(NcclTask* task) {
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

bool NcclQueue::IsDone(NcclTask* task) {
  MutexLock lock(&mu_);
  return task->done;
}

std::optional<Work::Span> NcclQueue::Ran(const NcclTask& task) {
  MutexLock lock(&mu_);
  if (!task.done || task.ended == MonoTime()) return std::nullopt;
  return Work::Span{task.began, task.ended};
}

void NcclQueue::Break(Status reason) {
  MutexLock lock(&mu_);
  if (!broken_.ok()) return;
  broken_ = std::move(reason);
  broken_at_ = MonotonicNow();
  queued_.NotifyAll();
  changed_.NotifyAll();
}

bool NcclQueue::Stop() {
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

void NcclQueue::SetFormed() {
  MutexLock lock(&mu_);
  formed_ = true;
  changed_.NotifyAll();
}

bool NcclQueue::WaitForWork(Duration most, bool idle) {
  MutexLock lock(&mu_);
  if (queue_.empty() && idle && !stopping_ && broken_.ok()) {
    queued_.WaitFor(&mu_, most);
  }
  return broken_.ok() && !(queue_.empty() && idle && stopping_);
}

void NcclQueue::Pause(Duration idle, Duration following) {
  MutexLock lock(&mu_);
  if (queue_.empty()) {
    queued_.WaitFor(&mu_, idle);
  } else if (queue_.front()->after != nullptr) {
    queued_.WaitFor(&mu_, following);
  }
}

std::pair<std::shared_ptr<NcclTask>, MonoTime> NcclQueue::Front() {
  MutexLock lock(&mu_);
  if (queue_.empty()) return {};
  return {queue_.front(), queue_.front()->deadline};
}

void NcclQueue::PopFront() {
  MutexLock lock(&mu_);
  NcclTask* const task = queue_.front().get();
  task->began = MonotonicNow();
  task->deadline = task->began + options_.operation_timeout;
  queue_.pop_front();
}

MonoTime NcclQueue::DeadlineOf(const NcclTask& task) {
  MutexLock lock(&mu_);
  return task.deadline;
}

void NcclQueue::Finish(NcclTask* task) {
  MutexLock lock(&mu_);
  GiveBackEvents(task);
  task->ended = MonotonicNow();
  task->done = true;
  changed_.NotifyAll();
}

void NcclQueue::FailAll(std::initializer_list<NcclTasks*> launched,
                        bool stuck) {
  MutexLock lock(&mu_);
  if (stuck) broken_ = StuckStatus();
  const auto fail = [this](NcclTasks* tasks) {
    mu_.AssertHeld();
    for (const auto& task : *tasks) {
      GiveBackEvents(task.get());
      task->status = broken_;
      task->done = true;
    }
    tasks->clear();
  };
  for (NcclTasks* const tasks : launched) fail(tasks);
  fail(&queue_);
  changed_.NotifyAll();
}

std::optional<MonoTime> NcclQueue::broken_at() {
  MutexLock lock(&mu_);
  if (broken_.ok()) return std::nullopt;
  return broken_at_;
}

std::vector<cudaEvent_t> NcclQueue::WaitForStop() {
  MutexLock lock(&mu_);
  dissolved_ = true;
  changed_.NotifyAll();
  // Buffers are their owner's until it lets the communicator go.
  while (!stopping_) queued_.Wait(&mu_);
  return std::exchange(events_, {});
}

void NcclQueue::SetOver() {
  MutexLock lock(&mu_);
  over_ = true;
  changed_.NotifyAll();
}

}  // namespace lockstep::worker::collective::nccl
