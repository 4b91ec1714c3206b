// The connections of one rank: which there are, and their end.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_LINKS_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_LINKS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/fd.h"
#include "common/base/mutex.h"
#include "worker/collective/tcp/connect.h"
#include "worker/collective/tcp/plan.h"
#include "worker/collective/tcp/wire.h"

namespace lockstep::worker::collective::tcp {

// One connection, and how far the operation `sequence` has come on it. Only the
// mesh and its waiter look inside.
struct Link {
  int peer = -1;
  int stream = 0;  // the first is watched
  Fd fd;
  size_t index = 0;
  size_t position = 0;  // of the peer, among all peers
  // Of the operation `sequence`: bytes of the header sent and received.
  uint64_t sequence = 0;
  size_t head_out = 0;
  size_t head_in = 0;
  Header head;
  // While operation `quiet` runs, the bytes that came are for a later one, and
  // the mesh does not look at them.
  uint64_t quiet = 0;
  // While operation `unwatched` runs, the end of this connection lies behind
  // bytes for a later operation, and the mesh does not look at it.
  uint64_t unwatched = 0;
  bool left = false;     // the peer said goodbye
  bool reading = false;  // while the rank waits: bytes of a flow are to come
};

// Used by one thread at a time, except Cut, IsCut and Unanswering, which any
// thread may call.
class Links {
 public:
  // `connections` to peers among `size` ranks, as ConnectPeers returns them.
  Links(int size, std::vector<Connection> connections);
  // Sends goodbye to all peers, unless the links were cut.
  ~Links();
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  // Between operations. Adds connections to the same peers; after a cut they
  // end at once.
  void Add(std::vector<Connection> connections);
  // Sets how many connections with each peer are used: at most those that
  // exist.
  void UseStreams(int streams);
  int streams() const { return streams_; }
  // Closes the connections that are not used. No operation may run on them.
  void CloseOthers();

  // The connection `stream` to `peer`, which exists.
  Link* Find(int peer, int stream) const {
    return routes_[position_of_[peer]][stream];
  }
  // By stream: all peers' first connections come first.
  const std::vector<std::unique_ptr<Link>>& all() const { return links_; }

  // Ends all connections, now and for ever.
  void Cut();
  bool IsCut() const { return cut_.load(std::memory_order_relaxed); }
  // A descriptor that is readable after a cut; -1: none was left.
  int wake_fd() const { return wake_.get(); }
  // Peers whose hosts have not answered for more than a second, although the
  // kernel sent the same bytes again several times.
  std::vector<int> Unanswering();

 private:
  void Take(Connection connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  int streams_ = 1;
  // Changed, under mu_, by the thread that uses the links; read by others
  // under it.
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<int> position_of_;  // of a peer, by rank; -1: none
  // By position and stream; null: there is none.
  std::vector<std::array<Link*, kMaxStreams>> routes_;
  Fd wake_;
  std::atomic<bool> cut_{false};
  Mutex mu_;
};

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_LINKS_H_
