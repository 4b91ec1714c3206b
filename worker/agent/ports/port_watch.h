// Finds processes that listen on a task's ports.
//
// A leased port is "taken" if a socket listens on it that no process of the
// task has open. A bind does not detect this: gRPC servers set SO_REUSEPORT, so
// two servers of one user silently share the port's connections.
#ifndef LOCKSTEP_WORKER_AGENT_PORTS_PORT_WATCH_H_
#define LOCKSTEP_WORKER_AGENT_PORTS_PORT_WATCH_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/os/procfs.h"

namespace lockstep::worker::agent {

struct Listener {
  int32_t port = 0;
  // Number of the socket: its file is "socket:[INODE]" in /proc/PID/fd.
  uint64_t inode = 0;

  bool operator==(const Listener&) const = default;
};

// Sockets that listen on `ports`, of /proc/net/tcp or tcp6.
std::vector<Listener> ParseListeners(std::string_view proc_net_tcp,
                                     const std::set<int32_t>& ports);
// Those of this network namespace, IPv4 and IPv6.
std::vector<Listener> ReadListeners(const std::set<int32_t>& ports);

// Returns the process of `all` that has each socket open: "process 12 (nc)", or
// "a process that this daemon may not inspect". Inspects each process once, and
// stops when all sockets are found.
std::map<uint64_t, std::string> HoldersOf(const std::set<uint64_t>& inodes,
                                          const std::vector<ProcessStat>& all);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_PORTS_PORT_WATCH_H_
