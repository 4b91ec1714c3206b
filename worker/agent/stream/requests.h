// Answers the coordinator's requests about this node: files of tasks, the hosts
// that it reaches, sessions in ranks, and checks of GPUs.
//
// Belongs to the event loop's thread; threads of its own do the work.
#ifndef LOCKSTEP_WORKER_AGENT_STREAM_REQUESTS_H_
#define LOCKSTEP_WORKER_AGENT_STREAM_REQUESTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "common/base/status.h"
#include "common/wire/probe_wire.h"
#include "common/wire/worker_wire.h"
#include "lockstep/v1/worker.pb.h"
#include "worker/agent/checks/gpu_checker.h"
#include "worker/agent/host/daemon_setup.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"
#include "worker/agent/loop/work_thread.h"
#include "worker/agent/sessions/sessions.h"
#include "worker/agent/stream/contact.h"
#include "worker/agent/stream/probe.h"
#include "worker/agent/work/work_directories.h"

namespace lockstep::worker::agent {

class Requests {
 public:
  // Pointers are borrowed. `answer` sends on the stream of that number, if it
  // is still open.
  Requests(
      const DaemonSetup* setup, EventLoop* loop, const WorkDirectories* work,
      std::function<void(uint64_t stream, const v1::WorkerMessage&)> answer,
      bool allow_sessions, SessionHooks session_hooks,
      GpuChecker::Parts checks);
  ~Requests();

  // Sets the port for reachability tests by other hosts. Call it before Start.
  void SetProbeListener(std::unique_ptr<ProbeListener> listener) {
    listener_ = std::move(listener);
  }
  // Returns 0 if there is none.
  int probe_port() const {
    return listener_ == nullptr ? 0 : listener_->port();
  }
  Status Start();

  void OnProbe(uint64_t stream, const ProbeQuery& query);
  void OnFile(uint64_t stream, const FileQuery& query);
  Sessions* sessions() { return &sessions_; }
  GpuChecker* checks() { return &checks_; }

 private:
  void SendFile(uint64_t stream, const FileAnswer& answer);

  const DaemonSetup* const setup_;
  EventLoop* const loop_;
  const WorkDirectories* const work_;
  const std::function<void(uint64_t, const v1::WorkerMessage&)> answer_;
  std::unique_ptr<ProbeListener> listener_;
  ContactServer contacts_;
  // Pending requests.
  int probes_ = 0;
  size_t files_ = 0;
  Sessions sessions_;
  GpuChecker checks_;
  Lifetime lifetime_;
  // Last: their jobs use the others.
  WorkThread probe_thread_;
  WorkThread file_thread_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_STREAM_REQUESTS_H_
