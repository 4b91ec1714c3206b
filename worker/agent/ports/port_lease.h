// Ports leased to programs on this host.
//
// An abstract Unix socket per port excludes other worker daemons of the same
// network namespace. A bound socket that never listens excludes other programs.
// The latter has SO_REUSEADDR, so the task's program can bind the port if it
// sets that option too, as nearly every server does. Otherwise it gets
// EADDRINUSE; the daemon then closes that socket for its next start (LetBind).
// Both sockets go to the shim of the task, which keeps them open: the port
// stays leased for the task's whole life, even if the daemon ends.
//
// Ports come from outside the kernel's ephemeral range, where any connection
// could take them. Thread-compatible.
#ifndef LOCKSTEP_WORKER_AGENT_PORTS_PORT_LEASE_H_
#define LOCKSTEP_WORKER_AGENT_PORTS_PORT_LEASE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"

namespace lockstep::worker::agent {

struct PortRange {
  int32_t first = 0;
  int32_t last = 0;  // Inclusive.
  // Takes ports from the beginning of the range instead of at random, for users
  // who must know a port in advance.
  bool in_order = false;

  bool operator==(const PortRange&) const = default;
};

// Parses /proc/sys/net/ipv4/ip_local_port_range: "32768\t60999\n".
StatusOr<PortRange> ParsePortRange(std::string_view text);

// Parses "27182,27190-27199"; keeps the order and ignores the kernel's range.
StatusOr<std::vector<PortRange>> ParsePortList(std::string_view text);

// Unprivileged ports outside `ephemeral`, in at most two ranges, without those
// below 10,000 where services live.
std::vector<PortRange> LeasableRanges(const PortRange& ephemeral);

class PortLease {
 public:
  PortLease(PortLease&&) = default;
  PortLease& operator=(PortLease&&) = default;

  int32_t port() const { return port_; }
  // Sockets of the lease, for another process to hold.
  std::vector<int> fds() const;

  // Closes the port's own socket: any program may bind the port, also without
  // SO_REUSEADDR. Other daemons stay excluded.
  void LetBind() { tcp_.Reset(); }

  // Leases a free port. AlreadyExists if `port` is in use.
  static StatusOr<PortLease> Take(int32_t port);
  // Takes the lease of a running task's port, which the task may have bound:
  // excludes only daemons. AlreadyExists: another process holds the lease, as
  // the task's shim does.
  static StatusOr<PortLease> Adopt(int32_t port);

 private:
  PortLease(int32_t port, Fd exclusion, Fd tcp)
      : port_(port), exclusion_(std::move(exclusion)), tcp_(std::move(tcp)) {}

  int32_t port_ = 0;
  Fd exclusion_;
  Fd tcp_;
};

// Leases `count` ports of `ranges`, or none. Starts at a random port, so ports
// are reused late; ranges in order start at the first. ResourceExhausted if too
// few are free.
StatusOr<std::vector<PortLease>> LeasePorts(
    int count, const std::vector<PortRange>& ranges);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_PORTS_PORT_LEASE_H_
