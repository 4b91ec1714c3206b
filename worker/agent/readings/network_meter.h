// Counts the bytes that a rank's processes have sent and received, from what
// the kernel knows at moments about a second apart. Pure.
//
// In the host's network namespace these are the payloads of the TCP sockets
// that its processes have open, loopback included. A socket counts from its
// first byte on, and what it had when it was seen last stays. So a connection
// that comes and goes between two readings is missed, and so is the last second
// of one that ends. UDP, RDMA and shared memory are not counted.
//
// A namespace of its own, such as a container's, is counted by its interfaces
// without the loopback: all bytes on the wire, headers included.
#ifndef LOCKSTEP_WORKER_AGENT_READINGS_NETWORK_METER_H_
#define LOCKSTEP_WORKER_AGENT_READINGS_NETWORK_METER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "common/os/tcp_sockets.h"

namespace lockstep::worker::agent {

struct NetworkBytes {
  uint64_t sent = 0;
  uint64_t received = 0;

  // Counters only grow.
  void Raise(const NetworkBytes& other);
  bool operator==(const NetworkBytes&) const = default;
};
NetworkBytes operator+(const NetworkBytes& a, const NetworkBytes& b);

// The connections of the host's namespace at one moment.
class SocketTable {
 public:
  explicit SocketTable(std::vector<TcpSocket> sockets);

  // Null: there is none.
  const TcpSocket* OfInode(uint64_t inode) const;
  const TcpSocket* OfCookie(uint64_t cookie) const;

 private:
  const std::vector<TcpSocket> sockets_;
  std::unordered_map<uint64_t, const TcpSocket*> by_inode_;
  std::unordered_map<uint64_t, const TcpSocket*> by_cookie_;
};

// One rank.
class NetworkMeter {
 public:
  // Takes the count of an earlier daemon: a part of it is in sockets that are
  // still open.
  void Adopt(const NetworkBytes& counted) { adopted_ = counted; }

  // `open`: inodes of the sockets that its processes have open.
  void TakeSockets(const std::set<uint64_t>& open, const SocketTable& sockets);
  // The counters of another network namespace that its processes are in.
  void TakeNamespace(uint64_t inode, const NetworkBytes& counters) {
    namespaces_[inode].Raise(counters);
  }

  // Never less than before.
  NetworkBytes total() const;

 private:
  NetworkBytes adopted_;
  // Of sockets that are gone.
  NetworkBytes closed_;
  // By cookie.
  std::map<uint64_t, NetworkBytes> open_;
  // By inode.
  std::map<uint64_t, NetworkBytes> namespaces_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_READINGS_NETWORK_METER_H_
