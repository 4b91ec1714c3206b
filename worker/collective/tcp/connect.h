// Connects a rank with its peers: while a communicator forms, and when it gets
// more connections later.
//
// A rank listens on one port of its address only until its peers are
// connected; the lower rank of two connects. Every connection is
// proven (auth.h) before it counts. A stranger's is dropped when it sends
// something wrong, when it sends nothing for 2 s, or when too many wait: it
// costs a few hundred bytes, and no time of the ranks.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_CONNECT_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_CONNECT_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/tcp/auth.h"
#include "worker/collective/tcp/directory.h"

namespace lockstep::worker::collective::tcp {

struct Listener {
  Fd fd;
  sockaddr_storage address;  // without the port
  uint16_t port = 0;
};

// Listens on a free port of `address`. InvalidArgument says why it cannot.
StatusOr<Listener> Listen(const std::string& address);

// The peers that a rank is connected with, and the secret that they share.
struct Neighbours {
  int rank = 0;
  std::vector<int> peers;     // ascending
  std::vector<Place> places;  // of the peers
  Secret secret;
};

// Connections [first, end) of those that a rank has with each peer.
struct StreamRange {
  int first = 0;
  int end = 1;
};

struct Connection {
  int peer = 0;
  int stream = 0;
  Fd fd;
};

// Returns connections to all peers: non-blocking, without delay, within a host
// with Reno for congestion control, else with the system's. Unauthenticated: a
// peer has another key. Unavailable: a peer went away or did not connect before
// `deadline`; the error names it, and so does LostPeersOf. Aborted: the
// descriptor `stop`, where there is one, became readable.
StatusOr<std::vector<Connection>> ConnectPeers(const Neighbours& neighbours,
                                               StreamRange streams,
                                               const Listener& listener,
                                               MonoTime deadline,
                                               int stop = -1);

// Returns the error for the end of a proven connection with `peer`. `error` is
// its errno; 0: in order, but without a goodbye. Names the peer as lost
// (lost_peers.h), except for a reset: a peer resets the connections that it
// gives up, most often because of another peer.
Status ConnectionLost(int peer, int error);

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_CONNECT_H_
