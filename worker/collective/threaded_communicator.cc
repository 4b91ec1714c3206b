#include "worker/collective/threaded_communicator.h"

#include <deque>
#include <thread>
#include <utility>

#include "common/base/mutex.h"
#include "worker/collective/host_memory.h"
#include "worker/collective/operation.h"

namespace lockstep {
namespace {

struct Task {
  explicit Task(const Operation& o) : operation(o) {}
  const Operation operation;
  // Both under Engine::mu_.
  bool done = false;
  Status status;
};

// What the communicator and its Works share.
class Engine {
 public:
  Engine(const ThreadedCommunicatorOptions& options,
         std::unique_ptr<Transport> transport)
      : options_(options), transport_(std::move(transport)) {}

  Transport* transport() const { return transport_.get(); }

  StatusOr<std::shared_ptr<Task>> Push(const Operation& operation) {
    auto task = std::make_shared<Task>(operation);
    MutexLock lock(&mu_);
    LOCKSTEP_RETURN_IF_ERROR(broken_);
    queue_.push_back(task);
    queued_.NotifyOne();
    return task;
  }

  // The first reason stays; everything that waits is woken.
  void Break(Status reason) {
    {
      MutexLock lock(&mu_);
      if (!broken_.ok()) return;
      broken_ = std::move(reason);
      FailQueueLocked();
      ended_.NotifyAll();
    }
    transport_->Cut();
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
        while (queue_.empty() && !stopping_) queued_.Wait(&mu_);
        if (queue_.empty()) return;
        task = queue_.front();
        queue_.pop_front();
      }
      Status status =
          transport_->Execute(task->operation, SystemClock().Now().mono +
                                                   options_.operation_timeout);
      // Cuts the other connections, so that all survivors see it now.
      if (!status.ok()) Break(Annotate(status, options_.label));
      MutexLock lock(&mu_);
      task->status = status.ok() ? OkStatus() : broken_;
      task->done = true;
      ended_.NotifyAll();
    }
  }

  Status Wait(Task* task, MonoTime deadline) {
    {
      MutexLock lock(&mu_);
      while (!task->done && ended_.WaitUntil(&mu_, deadline)) {
      }
      if (task->done) return task->status;
    }
    const std::string waiting = transport_->Waiting();
    Break(DeadlineExceeded("{}: {} did not end before its deadline{}{}",
                           options_.label, Describe(task->operation),
                           waiting.empty() ? "" : ", ", waiting));
    return WaitForEnd(task);
  }

  // After the cut the progress thread leaves the operation at once; until
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

 private:
  void FailQueueLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (const auto& task : queue_) {
      task->status = broken_;
      task->done = true;
    }
    queue_.clear();
  }

  const ThreadedCommunicatorOptions options_;
  const std::unique_ptr<Transport> transport_;
  Mutex mu_;
  CondVar queued_;  // for the progress thread
  CondVar ended_;   // for those who wait
  std::deque<std::shared_ptr<Task>> queue_ ABSL_GUARDED_BY(mu_);
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

 private:
  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<Task> task_;
};

class ThreadedCommunicator final : public Communicator {
 public:
  ThreadedCommunicator(const ThreadedCommunicatorOptions& options,
                       std::unique_ptr<Transport> transport)
      : options_(options),
        engine_(std::make_shared<Engine>(options, std::move(transport))),
        thread_([engine = engine_.get()] { engine->RunTasks(); }) {}

  ~ThreadedCommunicator() override {
    engine_->Stop();
    thread_.join();
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::string_view backend() const override {
    return engine_->transport()->name();
  }

  StatusOr<const Buffer*> Allocate(size_t bytes) override {
    return memory_.Allocate(bytes);
  }

  StatusOr<std::unique_ptr<Work>> Start(const Operation& operation,
                                        Stream stream) override {
    if (stream != nullptr) {
      return InvalidArgument("{}: host memory has no stream", options_.label);
    }
    if (operation.kind != CollectiveKind::kBarrier &&
        !memory_.Owns(operation.slice.buffer)) {
      return InvalidArgument("{}: the buffer is not this communicator's",
                             options_.label);
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckOperation(operation, options_.size));
    LOCKSTEP_RETURN_IF_ERROR(engine_->transport()->Check(operation));
    LOCKSTEP_ASSIGN_OR_RETURN(auto task, engine_->Push(operation));
    return std::make_unique<TaskWork>(engine_, std::move(task));
  }

  void Abort(std::string_view reason) override {
    engine_->Break(Aborted("{}: {}", options_.label, reason));
  }

 private:
  const ThreadedCommunicatorOptions options_;
  HostMemory memory_;
  const std::shared_ptr<Engine> engine_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Communicator> MakeThreadedCommunicator(
    const ThreadedCommunicatorOptions& options,
    std::unique_ptr<Transport> transport) {
  return std::make_unique<ThreadedCommunicator>(options, std::move(transport));
}

}  // namespace lockstep
