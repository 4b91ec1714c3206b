// Whether this host reaches others by TCP, and where others try this one.
#ifndef LOCKSTEP_WORKER_AGENT_STREAM_PROBE_H_
#define LOCKSTEP_WORKER_AGENT_STREAM_PROBE_H_

#include <memory>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/model/probe.h"

namespace lockstep {

// Connects to all at a time and closes; waits at most `timeout` (2 s at most),
// and tries up to three times within it.
// A host that refuses the connection is reached: only its daemon is away.
std::vector<ProbeResult> Probe(const std::vector<ProbeTarget>& targets,
                               Duration timeout);

// Takes connections and closes them, on a port of the kernel's choice: none
// that ranks are given. Thread-compatible.
class ProbeListener {
 public:
  // `address`: an IP of this host.
  static StatusOr<std::unique_ptr<ProbeListener>> Listen(
      const std::string& address);

  int port() const { return port_; }
  // To poll for reading: then call Dispatch, which takes a few connections.
  int fd() const { return fd_.get(); }
  void Dispatch();

 private:
  ProbeListener(Fd fd, int port) : fd_(std::move(fd)), port_(port) {}

  const Fd fd_;
  const int port_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_STREAM_PROBE_H_
