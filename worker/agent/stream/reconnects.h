// Decides when to reconnect after a stream has ended, and what to log about it.
//
// Belongs to the event loop's thread; a thread of its own checks certificates.
#ifndef LOCKSTEP_WORKER_AGENT_STREAM_RECONNECTS_H_
#define LOCKSTEP_WORKER_AGENT_STREAM_RECONNECTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/agent/loop/work_thread.h"

namespace lockstep::worker::agent {

class Reconnects {
 public:
  // The wait doubles from `first` to `most`. `check_dates` names the
  // certificate that has expired or is not yet valid, after a connection ended
  // with a status; it may take half a second, and may be empty.
  Reconnects(Duration first, Duration most,
             std::function<Status(const Status&)> check_dates)
      : first_(first), most_(most), check_dates_(std::move(check_dates)) {}

  // A stream is open and the coordinator is followed.
  void OnConnected();
  // Uses the longest wait, because the coordinator is not followed.
  void SlowDown() { wait_ = most_; }
  // A stream has ended, or could not be opened. Returns the wait.
  Duration OnClosed(const Status& status);
  // A connected stream has ended.
  void CountBroken() { ++broken_; }
  uint64_t broken() const { return broken_; }

 private:
  const Duration first_;
  const Duration most_;
  const std::function<Status(const Status&)> check_dates_;
  Duration wait_{};
  std::string last_complaint_;
  uint64_t broken_ = 0;
  // Created on demand. Last: its jobs use the others.
  std::unique_ptr<WorkThread> thread_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_STREAM_RECONNECTS_H_
