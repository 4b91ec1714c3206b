#include "worker/collective/threaded_communicator.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "worker/collective/host_memory.h"
#include "worker/collective/lost_peers.h"
#include "worker/collective/operation.h"

namespace lockstep::worker::collective {
namespace {

struct Task {
  explicit Task(const Operation& o) : operation(o) {}
  const Operation operation;
  // All under Engine::mu_.
  bool done = false;
  Status status;
  // When it was executed; both zero before.
  MonoTime began;
  MonoTime ended;
  // The transport is at work on it, though it is queued still.
  bool begun = false;
};

// What the communicator and its Works share.
class Engine final : public OperationQueue {
 public:
  Engine(const ThreadedCommunicatorOptions& options,
         std::unique_ptr<Transport> transport)
      : options_(options), transport_(std::move(transport)) {
    transport_->SetQueue(this);
  }

  std::optional<Operation> Next() override {
    MutexLock lock(&mu_);
    if (!broken_.ok() || queue_.empty()) return std::nullopt;
    return queue_.front()->operation;
  }
  bool BeginNext() override {
    MutexLock lock(&mu_);
    if (!broken_.ok() || queue_.empty()) return false;
    queue_.front()->begun = true;
    return true;
  }

  Transport* transport() const { return transport_.get(); }

  StatusOr<std::shared_ptr<Task>> Push(const Operation& operation) {
    auto task = std::make_shared<Task>(operation);
    MutexLock lock(&mu_);
    LOCKSTEP_RETURN_IF_ERROR(broken_);
    queue_.push_back(task);
    queued_.NotifyOne();
    return task;
  }

  // Runs `operation` in this thread, or queues it behind what is there.
  Status RunNow(const Operation& operation, MonoTime deadline) {
    if (!transport_->AnyThreadMayExecute() || !ClaimIdle()) {
      LOCKSTEP_ASSIGN_OR_RETURN(const auto task, Push(operation));
      return Wait(task.get(), deadline);
    }
    Task task(operation);
    transport_->SetAwaited(true);
    RunTask(&task, deadline);
    transport_->SetAwaited(false);
    MutexLock lock(&mu_);
    return task.status;
  }

  // Runs `change`, a change of the transport's plan, in this thread. Never
  // queued: what is under way follows the old plan.
  Status ChangePlan(MonoTime deadline,
                    const std::function<Status(MonoTime deadline)>& change) {
    if (!ClaimIdle()) {
      MutexLock lock(&mu_);
      LOCKSTEP_RETURN_IF_ERROR(broken_);
      return InvalidArgument(
          "{}: an operation is under way: the plan cannot change",
          options_.label);
    }
    transport_->SetAwaited(true);
    const Status status = change(BackstopFor(deadline));
    transport_->SetAwaited(false);
    const bool harmless = status.ok() || absl::IsInvalidArgument(status);
    if (!harmless) Break(Annotate(status, options_.label));
    MutexLock lock(&mu_);
    running_ = false;
    if (!queue_.empty() || stopping_) queued_.NotifyOne();
    if (!broken_.ok()) return broken_;
    return status.ok() ? status : Annotate(status, options_.label);
  }

  // The first reason stays; everything that waits is woken.
  void Break(const Status& reason) {
    {
      MutexLock lock(&mu_);
      if (!broken_.ok()) return;
      broken_ = reason;
      FailQueueLocked();
      ended_.NotifyAll();
    }
    transport_->Cut();
    if (options_.broken) options_.broken(reason);
  }

  void Stop() {
    MutexLock lock(&mu_);
    stopping_ = true;
    queued_.NotifyOne();
  }

  // The progress thread.
  void RunTasks() {
    for (;;) {
      std::shared_ptr<Task> task;
      {
        MutexLock lock(&mu_);
        while ((queue_.empty() || running_) && !stopping_) queued_.Wait(&mu_);
        if (queue_.empty()) return;
        task = ClaimLocked();
      }
      RunTask(task.get(), MonoTime::max());
    }
  }

  Status Wait(Task* task, MonoTime deadline) {
    const bool may_help = transport_->AnyThreadMayExecute();
    transport_->SetAwaited(true);
    if (may_help) Help(task, deadline);
    bool done = false;
    {
      MutexLock lock(&mu_);
      while (!task->done && ended_.WaitUntil(&mu_, deadline)) {
      }
      done = task->done;
    }
    if (!done) {
      const std::string peer =
          DescribePeer(transport_->CurrentWait().value_or(PeerWait()));
      Break(WithLostPeers(
          DeadlineExceeded("{}: {} did not end before its deadline{}{}",
                           options_.label, Describe(task->operation),
                           peer.empty() ? "" : ", waiting for ", peer),
          transport_->LostPeers()));
    }
    transport_->SetAwaited(false);
    return WaitForEnd(task);
  }

  // After the cut the thread that runs the operation leaves it at once; until
  // then the slice is in use, so there is no deadline to give up at.
  Status WaitForEnd(Task* task) {
    MutexLock lock(&mu_);
    while (!task->done) ended_.Wait(&mu_);
    return task->status;
  }

  bool Done(Task* task) {
    MutexLock lock(&mu_);
    return task->done;
  }

  std::optional<Work::Span> Ran(Task* task) {
    MutexLock lock(&mu_);
    if (!task->done || task->ended == MonoTime()) return std::nullopt;
    return Work::Span{task->began, task->ended};
  }

 private:
  MonoTime BackstopFor(MonoTime deadline) const {
    const MonoTime backstop = MonotonicNow() + options_.operation_timeout;
    return std::min(deadline, backstop);
  }

  // Claims the transport when nothing runs and nothing is queued. The caller
  // runs RunTask then.
  bool ClaimIdle() {
    MutexLock lock(&mu_);
    // What is broken answers by the queue.
    if (!broken_.ok() || running_ || !queue_.empty()) return false;
    running_ = true;
    return true;
  }

  std::shared_ptr<Task> ClaimLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::shared_ptr<Task> task = std::move(queue_.front());
    queue_.pop_front();
    running_ = true;
    return task;
  }

  // Runs what is queued, in this thread, until `task` is done or the progress
  // thread runs something.
  void Help(Task* task, MonoTime deadline) {
    for (;;) {
      std::shared_ptr<Task> next;
      {
        MutexLock lock(&mu_);
        if (task->done || running_ || queue_.empty()) return;
        next = ClaimLocked();
      }
      RunTask(next.get(), deadline);
    }
  }

  // After a claim.
  void RunTask(Task* task, MonoTime deadline) {
    const MonoTime began = MonotonicNow();
    const Status status =
        transport_->Execute(task->operation, BackstopFor(deadline));
    // Cuts the other connections, so that all survivors see it now.
    if (!status.ok()) Break(Annotate(status, options_.label));
    const MonoTime ended = MonotonicNow();
    MutexLock lock(&mu_);
    running_ = false;
    task->began = began;
    task->ended = ended;
    task->status = status.ok() ? OkStatus() : broken_;
    task->done = true;
    ended_.NotifyAll();
    if (!queue_.empty() || stopping_) queued_.NotifyOne();
  }

  // What the transport has begun stays: its Execute fails at once and tells
  // when the slice is free.
  void FailQueueLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::erase_if(queue_, [&](const std::shared_ptr<Task>& task) {
      mu_.AssertHeld();
      if (task->begun) return false;
      task->status = broken_;
      task->done = true;
      return true;
    });
    if (!queue_.empty()) queued_.NotifyOne();
  }

  const ThreadedCommunicatorOptions options_;
  const std::unique_ptr<Transport> transport_;
  Mutex mu_;
  CondVar queued_;  // for the progress thread
  CondVar ended_;   // for those who wait
  std::deque<std::shared_ptr<Task>> queue_ ABSL_GUARDED_BY(mu_);
  // A thread is in Transport::Execute.
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  Status broken_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

class TaskWork final : public Work {
 public:
  TaskWork(std::shared_ptr<Engine> engine, std::shared_ptr<Task> task)
      : engine_(std::move(engine)), task_(std::move(task)) {}
  ~TaskWork() override { (void)engine_->WaitForEnd(task_.get()); }

  Status Wait(MonoTime deadline) override {
    return engine_->Wait(task_.get(), deadline);
  }
  bool Poll() override { return engine_->Done(task_.get()); }
  std::optional<Span> ran() const override { return engine_->Ran(task_.get()); }

 private:
  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<Task> task_;
};

class ThreadedCommunicator final : public Communicator {
 public:
  ThreadedCommunicator(const ThreadedCommunicatorOptions& options,
                       std::unique_ptr<Transport> transport)
      : options_(options),
        memory_(options.addresses),
        engine_(std::make_shared<Engine>(options, std::move(transport))) {}

  ~ThreadedCommunicator() override {
    if (!thread_.joinable()) return;
    engine_->Stop();
    thread_.join();
  }

  // Once, before all else.
  Status StartThread() {
    try {
      thread_ = std::thread([engine = engine_.get()] { engine->RunTasks(); });
    } catch (const std::system_error& e) {
      return ResourceExhausted("{}: no thread to reduce in: {}", options_.label,
                               e.what());
    }
    return OkStatus();
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::string_view backend() const override {
    return engine_->transport()->name();
  }
  bool HasAllToAll() const override {
    return engine_->transport()->HasAllToAll();
  }
  std::optional<PeerWait> CurrentWait() const override {
    return engine_->transport()->CurrentWait();
  }
  std::string Plan() const override { return engine_->transport()->Plan(); }
  std::string ReductionPlan() const override {
    return engine_->transport()->ReductionPlan();
  }
  Status Tune(Duration budget, MonoTime deadline) override {
    return engine_->ChangePlan(deadline, [&](MonoTime until) {
      return engine_->transport()->Tune(budget, until);
    });
  }
  Status FollowPlan(const std::string& plan, MonoTime deadline) override {
    return engine_->ChangePlan(deadline, [&](MonoTime until) {
      return engine_->transport()->FollowPlan(plan, until);
    });
  }

  StatusOr<const Buffer*> Allocate(size_t bytes) override {
    TransportMemory* const own = engine_->transport()->memory();
    return own != nullptr ? own->Allocate(bytes) : memory_.Allocate(bytes);
  }

  StatusOr<const Buffer*> Register(void* data, size_t bytes) override {
    TransportMemory* const own = engine_->transport()->memory();
    if (own != nullptr) return own->Register(data, bytes);
    if (data == nullptr && bytes > 0) {
      return InvalidArgument("{}: no memory to register", options_.label);
    }
    registered_.push_back(std::make_unique<Buffer>(
        Buffer{.data = data, .bytes = bytes, .kind = MemoryKind::kHost}));
    return registered_.back().get();
  }

  StatusOr<const Buffer*> AnyMemory() override {
    TransportMemory* const own = engine_->transport()->memory();
    if (own != nullptr) return own->AnyMemory();
    return memory_.Any();
  }

  StatusOr<std::unique_ptr<Work>> Start(const Operation& operation,
                                        Stream stream) override {
    if (stream != nullptr) {
      return InvalidArgument("{}: host memory has no stream", options_.label);
    }
    LOCKSTEP_RETURN_IF_ERROR(Check(operation));
    LOCKSTEP_ASSIGN_OR_RETURN(auto task, engine_->Push(operation));
    return std::make_unique<TaskWork>(engine_, std::move(task));
  }

  Status RunNow(const Operation& operation, MonoTime deadline) override {
    LOCKSTEP_RETURN_IF_ERROR(Check(operation));
    return engine_->RunNow(operation, deadline);
  }

  void Abort(std::string_view reason) override {
    engine_->Break(Aborted("{}: {}", options_.label, reason));
  }

 private:
  Status Check(const Operation& operation) const {
    if (operation.kind != CollectiveKind::kBarrier &&
        !Owns(operation.slice.buffer)) {
      return InvalidArgument("{}: the buffer is not this communicator's",
                             options_.label);
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckOperation(operation, options_.size));
    if (operation.kind != CollectiveKind::kBarrier &&
        reinterpret_cast<uintptr_t>(operation.slice.buffer->data) %
                SizeOf(operation.slice.type) !=
            0) {
      return InvalidArgument("{}: {} needs memory aligned to {} bytes",
                             options_.label, Describe(operation),
                             SizeOf(operation.slice.type));
    }
    if (operation.kind == CollectiveKind::kAllToAll) {
      if (!HasAllToAll()) {
        return Unimplemented("{}: backend {} has no all-to-all of {} ranks",
                             options_.label, backend(), options_.size);
      }
      LOCKSTEP_RETURN_IF_ERROR(CheckCounts(operation, options_.rank));
    }
    return engine_->transport()->Check(operation);
  }

  // Compares the pointer only: safe with any value.
  bool Owns(const Buffer* buffer) const {
    TransportMemory* const own = engine_->transport()->memory();
    if (own != nullptr) return own->Owns(buffer);
    return memory_.Owns(buffer) ||
           std::any_of(registered_.begin(), registered_.end(),
                       [&](const auto& mine) { return mine.get() == buffer; });
  }

  const ThreadedCommunicatorOptions options_;
  HostMemory memory_;
  std::vector<std::unique_ptr<Buffer>> registered_;
  const std::shared_ptr<Engine> engine_;
  std::thread thread_;
};

}  // namespace

Status Transport::FollowPlan(const std::string& plan, MonoTime) {
  if (plan == ReductionPlan()) return OkStatus();
  return InvalidArgument("{} has the reduction plan \"{}\", not \"{}\"", name(),
                         ReductionPlan(), plan);
}

StatusOr<std::unique_ptr<Communicator>> MakeThreadedCommunicator(
    const ThreadedCommunicatorOptions& options,
    std::unique_ptr<Transport> transport) {
  auto communicator =
      std::make_unique<ThreadedCommunicator>(options, std::move(transport));
  LOCKSTEP_RETURN_IF_ERROR(communicator->StartThread());
  return communicator;
}

}  // namespace lockstep::worker::collective
