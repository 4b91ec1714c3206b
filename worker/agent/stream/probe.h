// Tests whether this host reaches others by TCP, and accepts their tests.
#ifndef LOCKSTEP_WORKER_AGENT_STREAM_PROBE_H_
#define LOCKSTEP_WORKER_AGENT_STREAM_PROBE_H_

#include <functional>
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

// Begins a TCP connection to the target without waiting. *error is 0 for one
// that is open, EINPROGRESS, or why there is no socket; EINVAL: the address is
// no IP address.
Fd BeginConnection(const ProbeTarget& target, int* error);

// Accepts connections on a port that the kernel chooses; ranks never get such a
// port. Thread-compatible.
class ProbeListener {
 public:
  // `address` is an IP address of this host. Takes the port `before` if it is
  // free, which other hosts may still know; 0: none.
  static StatusOr<std::unique_ptr<ProbeListener>> Listen(
      const std::string& address, int before = 0);

  int port() const { return port_; }
  // Poll it for reading, then call Dispatch, which accepts a few connections
  // and gives them to `take`; without it they are closed.
  int fd() const { return fd_.get(); }
  void Dispatch(const std::function<void(Fd)>& take = nullptr);

 private:
  static StatusOr<std::unique_ptr<ProbeListener>> ListenOn(
      const std::string& address, int wanted);
  ProbeListener(Fd fd, int port) : fd_(std::move(fd)), port_(port) {}

  const Fd fd_;
  const int port_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_STREAM_PROBE_H_
