// A fixed set of ranks and their collectives over the caller's memory: what
// "Groups" of lockstep.h promises, in C++.
//
// Collectives run in the order in which they were started, on a thread of the
// group, over one communicator (runner.h has what each costs). Sends and
// receives have channels of their own (channel.h), in no order with the
// collectives.
//
// Threads: every function may be called from any thread. Before the destructor
// runs, no call but NextEnded may be under way.
//
// Errors: InvalidArgument is this rank's own mistake; nothing was sent, and the
// group stays usable. After the first failed collective the group is broken:
// every later operation returns the same error. Unavailable: a peer is gone.
// DeadlineExceeded: a peer did not come in time. FailedPrecondition: the ranks
// started different operations; both are named. Aborted: Abort.
// An error of a send or receive breaks its channel only.
//
// The process must ignore SIGPIPE, or a peer that goes kills it.
#ifndef LOCKSTEP_WORKER_PROCESS_GROUP_PROCESS_GROUP_H_
#define LOCKSTEP_WORKER_PROCESS_GROUP_PROCESS_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/leveling.h"
#include "worker/process_group/channels.h"
#include "worker/process_group/ended_queue.h"
#include "worker/process_group/group_options.h"
#include "worker/process_group/operation.h"
#include "worker/process_group/runner.h"
#include "worker/process_group/work.h"

namespace lockstep::worker::process_group {

class ProcessGroup {
 public:
  // Blocks until all ranks have come. Errors are those of FormCommunicator
  // (worker/collective/factory/form_communicator.h).
  static StatusOr<std::unique_ptr<ProcessGroup>> Form(
      const GroupOptions& options);
  // Ends what is under way with Aborted and waits for that. A NextEnded that
  // waits returns Aborted first.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  // One line: which backend was taken, how it reduces, and why.
  const std::string& Describe() const { return description_; }

  // Starts `operation` and returns at once. Error: it was not started, and its
  // cookie does not come.
  StatusOr<std::shared_ptr<Work>> Start(const Operation& operation);
  // Start and Wait in one. A collective runs in the calling thread where no
  // other one is under way.
  Status Run(const Operation& operation);

  // All ranks call it while no collective is under way: levels their states
  // (worker/collective/leveling.h, also `written`). FailedPrecondition: a
  // collective is under way.
  StatusOr<collective::LevelResult> Level(collective::LevelInput input,
                                          bool* written);

  // For one thread that serves callbacks: waits until an operation that was
  // started with a cookie has ended; returns how many cookies it wrote, in the
  // order of the ends. 0: `timeout` passed; negative: for ever. Aborted: the
  // group was aborted or is being freed, and no cookie is left.
  StatusOr<size_t> NextEnded(Duration timeout, std::span<uint64_t> cookies) {
    return ended_->Take(timeout, cookies);
  }

  // Ends every operation, now and later, with Aborted and `reason`, within
  // 50 ms. The first reason stays.
  void Abort(std::string_view reason);

 private:
  ProcessGroup(const GroupOptions& options, std::string description,
               std::unique_ptr<collective::Communicator> communicator,
               const collective::Buffer* any);
  Status StartThread();
  StatusOr<Request> Check(const Operation& operation) const;
  StatusOr<std::shared_ptr<Work>> StartChecked(Request request,
                                               uint64_t cookie);
  // True: nothing is under way, and the caller runs its collective now.
  StatusOr<bool> ClaimIdle();
  // After a claim.
  Status RunClaimed(const Request& request);
  // Calls `run` and gives the claim back. `name` says in an error what ran.
  template <typename Function, typename Name>
  Status EndClaimed(const Function& run, const Name& name);
  void Serve();
  // The first error stays.
  void Break(const Status& status);

  const GroupOptions options_;
  const std::string description_;
  const std::unique_ptr<collective::Communicator> communicator_;
  Runner runner_;  // of who has the claim
  const std::shared_ptr<EndedQueue> ended_;
  Channels channels_;
  Mutex mu_;
  CondVar changed_;
  std::deque<std::shared_ptr<Work>> queue_ ABSL_GUARDED_BY(mu_);
  // A thread runs a collective.
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  Status broken_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace lockstep::worker::process_group

#endif  // LOCKSTEP_WORKER_PROCESS_GROUP_PROCESS_GROUP_H_
