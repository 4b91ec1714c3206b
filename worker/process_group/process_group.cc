#include "worker/process_group/process_group.h"

#include <new>
#include <system_error>
#include <utility>

#include "worker/collective/factory/form_communicator.h"
#include "worker/process_group/deadline.h"
#include "worker/process_group/errors.h"

namespace lockstep::worker::process_group {

using collective::Buffer;
using collective::Communicator;

namespace {

// The options of channels: two ranks are never more than one host each.
GroupOptions WithBackend(GroupOptions options, std::string_view taken) {
  options.backend = taken == "shm" || taken == "tcp" ? taken : "auto";
  return options;
}

}  // namespace

StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::Form(
    const GroupOptions& options) {
  if (options.operation_timeout <= Duration::zero() ||
      options.forming_timeout <= Duration::zero()) {
    return InvalidArgument("{}: timeouts must be positive", options.label);
  }
  collective::CommunicatorOptions forming;
  forming.backend = options.backend;
  forming.rank = options.rank;
  forming.size = options.size;
  forming.label = options.label;
  forming.bind_address = options.bind_address;
  // Every operation has a deadline of its own.
  forming.operation_timeout = kForever;
  forming.forming_deadline = After(options.forming_timeout);
  forming.key = options.key;
  forming.host = options.host;
  forming.rendezvous = options.store.get();
  std::string choice = "backend self: there is one rank";
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator,
                            FormCommunicator(forming, &choice));
  const auto any = communicator->AnyMemory();
  if (!any.ok()) return Annotate(any.status(), options.label);
  std::unique_ptr<ProcessGroup> group(
      new ProcessGroup(options, choice, std::move(communicator), *any));
  LOCKSTEP_RETURN_IF_ERROR(group->StartThread());
  return group;
}

ProcessGroup::ProcessGroup(const GroupOptions& options, std::string description,
                           std::unique_ptr<Communicator> communicator,
                           const Buffer* any)
    : options_(options),
      description_(std::move(description)),
      communicator_(std::move(communicator)),
      runner_(communicator_.get(), any),
      ended_(std::make_shared<EndedQueue>()),
      channels_(WithBackend(options, communicator_->backend())) {}

Status ProcessGroup::StartThread() {
  try {
    thread_ = std::thread([this] { Serve(); });
  } catch (const std::system_error& e) {
    return ResourceExhausted("{}: no thread to run in: {}", options_.label,
                             e.what());
  }
  return OkStatus();
}

ProcessGroup::~ProcessGroup() {
  bool idle = false;
  {
    MutexLock lock(&mu_);
    idle = queue_.empty() && !running_;
    stopping_ = true;
    changed_.NotifyAll();
  }
  // Peers may still be at the last operation: an end without an abort lets
  // them come to its end.
  if (!idle) Abort("the group was freed");
  if (thread_.joinable()) thread_.join();
  channels_.Free();
  ended_->Close();
  ended_->AwaitTakers();
}

StatusOr<Request> ProcessGroup::Check(const Operation& operation) const {
  auto request = MakeRequest(operation, rank(), size());
  if (!request.ok()) return Annotate(request.status(), options_.label);
  if (request->timeout == Duration::zero()) {
    request->timeout = options_.operation_timeout;
  }
  return request;
}

StatusOr<std::shared_ptr<Work>> ProcessGroup::Start(
    const Operation& operation) {
  LOCKSTEP_ASSIGN_OR_RETURN(Request request, Check(operation));
  return StartChecked(std::move(request), operation.cookie);
}

StatusOr<std::shared_ptr<Work>> ProcessGroup::StartChecked(Request request,
                                                           uint64_t cookie) {
  auto work = std::make_shared<Work>(std::move(request), cookie, ended_);
  if (work->request().is_message()) {
    {
      MutexLock lock(&mu_);
      LOCKSTEP_RETURN_IF_ERROR(broken_);
    }
    LOCKSTEP_RETURN_IF_ERROR(channels_.Push(work));
    return work;
  }
  MutexLock lock(&mu_);
  LOCKSTEP_RETURN_IF_ERROR(broken_);
  queue_.push_back(work);
  changed_.NotifyAll();
  return work;
}

Status ProcessGroup::Run(const Operation& operation) {
  LOCKSTEP_ASSIGN_OR_RETURN(Request request, Check(operation));
  bool mine = false;
  if (!request.is_message() && operation.cookie == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(mine, ClaimIdle());
  }
  if (mine) return RunClaimed(request);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::shared_ptr<Work> work,
                            StartChecked(std::move(request), operation.cookie));
  return work->Wait(Duration(-1));
}

StatusOr<bool> ProcessGroup::ClaimIdle() {
  MutexLock lock(&mu_);
  LOCKSTEP_RETURN_IF_ERROR(broken_);
  if (running_ || !queue_.empty()) return false;
  running_ = true;
  return true;
}

template <typename Function, typename Name>
Status ProcessGroup::EndClaimed(const Function& run, const Name& name) {
  Status status;
  try {
    status = run();
  } catch (const std::bad_alloc&) {
    status = ResourceExhausted("{}: no memory", options_.label);
  }
  if (!status.ok()) Break(During(status, name()));
  MutexLock lock(&mu_);
  running_ = false;
  if (!queue_.empty() || stopping_) changed_.NotifyAll();
  return status.ok() ? status : broken_;
}

Status ProcessGroup::RunClaimed(const Request& request) {
  return EndClaimed(
      [&] { return runner_.Run(request, After(request.timeout)); },
      [&] { return process_group::Describe(request); });
}

StatusOr<collective::LevelResult> ProcessGroup::Level(
    collective::LevelInput input, bool* written) {
  LOCKSTEP_ASSIGN_OR_RETURN(const bool mine, ClaimIdle());
  if (!mine) {
    return FailedPrecondition(
        "{}: ranks level their states while no collective is under way",
        options_.label);
  }
  collective::LevelResult result;
  const auto level = [&]() -> Status {
    LOCKSTEP_ASSIGN_OR_RETURN(
        result, collective::Level(communicator_.get(), std::move(input),
                                  options_.operation_timeout, written));
    return OkStatus();
  };
  LOCKSTEP_RETURN_IF_ERROR(
      EndClaimed(level, [] { return std::string("leveling"); }));
  return result;
}

void ProcessGroup::Serve() {
  for (;;) {
    std::shared_ptr<Work> work;
    {
      MutexLock lock(&mu_);
      while ((queue_.empty() || running_) && !(stopping_ && !running_)) {
        changed_.Wait(&mu_);
      }
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
      running_ = true;
    }
    work->End(RunClaimed(work->request()));
  }
}

// The communicator is aborted: peers that wait for this rank learn why.
void ProcessGroup::Break(const Status& status) {
  std::deque<std::shared_ptr<Work>> ended;
  {
    MutexLock lock(&mu_);
    if (!broken_.ok()) return;
    broken_ = status;
    ended.swap(queue_);
    changed_.NotifyAll();
  }
  communicator_->Abort(WithoutLabel(Message(status), options_.label));
  for (const std::shared_ptr<Work>& work : ended) work->End(status);
}

void ProcessGroup::Abort(std::string_view reason) {
  Break(Aborted("{}: {}", options_.label, reason));
  channels_.Abort(std::string(reason));
  ended_->Close();
}

}  // namespace lockstep::worker::process_group
