// The worker daemon's side: starts a shim and communicates with it
// (worker/task/shim_messages.h). Not linked into the shim.
#ifndef LOCKSTEP_WORKER_SHIM_SHIM_CLIENT_H_
#define LOCKSTEP_WORKER_SHIM_SHIM_CLIENT_H_

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/os/process.h"
#include "worker/task/exit_record.h"
#include "worker/task/shim_messages.h"
#include "worker/task/shim_spec.h"
#include "worker/task/task_record.h"

namespace lockstep::worker::shim {

// Starts `shim_program` (an absolute path) for `spec` and returns immediately.
// The caller must call WaitExit for the process eventually. Errors that the
// shim cannot record go to `stderr_path` unless it is empty. `held` are
// descriptors that the shim keeps open and the rank does not get: leased ports,
// a lock. InvalidArgument if the spec is invalid.
StatusOr<Process> StartShim(const std::string& shim_program,
                            const task::ShimSpec& spec,
                            const std::string& stderr_path,
                            const std::vector<int>& held = {});

// Reads the records of a shim. NotFound if the file does not exist, DataLoss if
// it is damaged.
StatusOr<task::TaskRecord> ReadTaskRecord(const std::string& path);
StatusOr<task::ExitRecord> ReadExitRecord(const std::string& path);

// One greeted connection. Thread-compatible: one thread at a time.
//
// Each call waits for its answer until `deadline`: DeadlineExceeded;
// Unavailable if the shim has closed the connection (it has exited, and its
// exit record is on disk); PermissionDenied or FailedPrecondition with the
// shim's own sentence if it refused.
class ShimClient {
 public:
  // Retries until a shim listens. NotFound if none did by `deadline` (a past
  // deadline means one try), PermissionDenied for a wrong nonce.
  static StatusOr<std::unique_ptr<ShimClient>> Connect(
      const std::string& socket_path, const std::string& nonce,
      MonoTime deadline);

  // The shim's last reply, including the one to HELLO.
  const task::ShimReply& last() const { return last_; }

  StatusOr<task::ShimReply> State(MonoTime deadline);
  StatusOr<task::ShimReply> Signal(int signo, bool whole_tree,
                                   MonoTime deadline);
  // Sends SIGTERM to the tree now and SIGKILL after `grace`; 0: SIGKILL
  // immediately; nullopt: the grace of the spec. Returns immediately: the end
  // is pushed.
  StatusOr<task::ShimReply> KillTree(std::optional<Duration> grace,
                                     MonoTime deadline);
  // The rank may go on until `fence_nanos` of CLOCK_BOOTTIME. For a shim whose
  // spec has a fence: others refuse it.
  StatusOr<task::ShimReply> Fence(int64_t fence_nanos, MonoTime deadline);
  // Starts a command in the rank (session.h) with the descriptors `fds`, which
  // shim_messages.h lists. FailedPrecondition: the rank does not run, or has
  // too many sessions.
  StatusOr<task::ShimReply> StartSession(task::ShimRequest request,
                                         const std::vector<int>& fds,
                                         MonoTime deadline);
  // The exit record was read: the shim may exit.
  StatusOr<task::ShimReply> Forget(MonoTime deadline);

  // Poll it for reading, then call TakePush until it returns nullopt.
  int fd() const { return fd_.get(); }
  // Returns the next pushed state without waiting. Unavailable if the
  // connection is closed and no state is left.
  StatusOr<std::optional<task::ShimReply>> TakePush();

 private:
  explicit ShimClient(Fd fd) : fd_(std::move(fd)) {}
  StatusOr<task::ShimReply> Call(task::ShimRequest request, MonoTime deadline,
                                 const std::vector<int>& fds = {});
  StatusOr<task::ShimReply> Receive(MonoTime deadline);

  Fd fd_;
  uint32_t last_id_ = 0;
  task::ShimReply last_;
  std::deque<task::ShimReply> pushed_;
};

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_SHIM_CLIENT_H_
