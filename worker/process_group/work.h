// One started operation of a group.
#ifndef LOCKSTEP_WORKER_PROCESS_GROUP_WORK_H_
#define LOCKSTEP_WORKER_PROCESS_GROUP_WORK_H_

#include <cstdint>
#include <memory>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/process_group/ended_queue.h"
#include "worker/process_group/request.h"

namespace lockstep::worker::process_group {

// Reason (ReasonOf) of a Wait whose own timeout passed.
inline constexpr char kReasonNotEnded[] = "NOT_ENDED";

// Safe from any thread. It may outlive its group.
class Work {
 public:
  // `ended` gets `cookie` when the operation ends, unless that is 0.
  Work(Request request, uint64_t cookie, std::shared_ptr<EndedQueue> ended);
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // Waits for the end and returns the operation's result. DeadlineExceeded with
  // kReasonNotEnded: `timeout` passed, and the operation goes on. 0 asks and
  // does not wait; negative: for the end, which the operation's own timeout
  // bounds.
  Status Wait(Duration timeout);
  bool ended();

  // ---- For who runs it ----

  const Request& request() const { return request_; }
  // Once; the memory of the operation is the caller's again.
  void End(const Status& status);

 private:
  const Request request_;
  const uint64_t cookie_;
  const std::shared_ptr<EndedQueue> ended_queue_;
  Mutex mu_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::worker::process_group

#endif  // LOCKSTEP_WORKER_PROCESS_GROUP_WORK_H_
