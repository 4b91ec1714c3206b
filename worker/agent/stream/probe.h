// Tests whether this host reaches others by TCP, and accepts their tests.
#ifndef LOCKSTEP_WORKER_AGENT_STREAM_PROBE_H_
#define LOCKSTEP_WORKER_AGENT_STREAM_PROBE_H_

#include <memory>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/model/probe.h"

namespace lockstep::worker::agent {

// Connects to all targets in parallel and closes; waits at most `timeout` (2 s
// at most), with up to three attempts each. A host that refuses the connection
// counts as reached: only its daemon is down.
std::vector<ProbeResult> Probe(const std::vector<ProbeTarget>& targets,
                               Duration timeout);

// Accepts and closes connections on a port that the kernel chooses; ranks never
// get such a port. Thread-compatible.
class ProbeListener {
 public:
  // `address` is an IP address of this host.
  static StatusOr<std::unique_ptr<ProbeListener>> Listen(
      const std::string& address);

  int port() const { return port_; }
  // Poll it for reading, then call Dispatch, which accepts a few connections.
  int fd() const { return fd_.get(); }
  void Dispatch();

 private:
  ProbeListener(Fd fd, int port) : fd_(std::move(fd)), port_(port) {}

  const Fd fd_;
  const int port_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_STREAM_PROBE_H_
