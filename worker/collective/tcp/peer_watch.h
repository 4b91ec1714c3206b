// Detects that a peer is gone while no operation looks at its connection.
//
// Its thread sleeps until a connection ends. An operation on the connections
// finds that out by itself, and has the better error (a mismatch), so the
// thread reports nothing while `busy`; nor does it where the peer said goodbye
// first.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_PEER_WATCH_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_PEER_WATCH_H_

#include <functional>
#include <thread>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"

namespace lockstep::worker::collective::tcp {

class PeerWatch {
 public:
  struct Peer {
    int rank = -1;
    int socket = -1;  // borrowed; only looked at
  };

  // `busy` and `lost` are called by the thread, `lost` once at most; `error`:
  // the errno with which the connection ended, 0 where it ended in order.
  PeerWatch(std::vector<Peer> peers, std::function<bool()> busy,
            std::function<void(int rank, int error)> lost);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // ResourceExhausted: no thread or descriptor was left.
  Status Start();

 private:
  void Loop();

  const std::vector<Peer> peers_;
  const std::function<bool()> busy_;
  const std::function<void(int, int)> lost_;
  Fd stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_PEER_WATCH_H_
