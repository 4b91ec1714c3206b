// The connections of one rank, and how bytes move over them: without blocking,
// straight from and into the caller's memory, with a header before the bytes
// of each operation (wire.h).
//
// Who waits for a peer watches the first connection with each: the end of any
// of them ends the operation, and a header of another operation with the same
// number is found also on one that this operation does not use. Further
// connections (Plan::streams) are looked at while bytes are to come or to go
// over them.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_MESH_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_MESH_H_

#include <poll.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/fd.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/tcp/connect.h"
#include "worker/collective/tcp/plan.h"
#include "worker/collective/tcp/wire.h"

namespace lockstep::tcp {

// One connection. Only the mesh looks inside.
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
  // While operation `quiet` runs, what came is for later; it is not looked at.
  uint64_t quiet = 0;
  // While operation `unwatched` runs, the end of this connection, behind bytes
  // that are for later, is not looked at.
  uint64_t unwatched = 0;
  bool left = false;     // the peer said goodbye
  bool reading = false;  // while it is waited for: bytes of a flow are to come
};

// Bytes to one peer or from it; without a link, nothing.
struct Flow {
  Link* link = nullptr;
  char* data = nullptr;
  size_t bytes = 0;
  size_t done = 0;
};

// One thread at a time, but Cut, SetAwaited, waiting_for and Unanswering.
class Mesh {
 public:
  // `connections`: as ConnectPeers returns them. `spin`: who is awaited may
  // spin briefly.
  Mesh(int rank, int size, std::vector<Connection> connections, bool spin);
  // Says goodbye, unless it was cut.
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Begins the next operation. Errors of the mesh are for ever.
  void Begin(const Operation& operation, MonoTime deadline,
             Purpose purpose = Purpose::kCaller);

  // Between operations. Takes further connections of the same peers; after a
  // cut they end at once.
  void AddConnections(std::vector<Connection> connections);
  // How many connections with each peer are used: those there are, at most.
  void UseStreams(int streams);
  int streams() const { return streams_; }
  // Closes those that are not used. Nothing may be under way on them.
  void CloseOthers();
  // Readable after a cut.
  int wake_fd() const { return wake_.get(); }

  // `data` is only read. The connection `stream` to `peer` must be there.
  Flow To(int peer, const void* data, size_t bytes, int stream = 0);
  Flow From(int peer, void* data, size_t bytes, int stream = 0);

  // Move what goes without waiting; true when something moved. On an error
  // nothing moves, and Pause returns it.
  bool Send(Flow* flow);
  bool Receive(Flow* flow);
  static bool Sent(const Flow& flow) {
    return flow.link == nullptr ||
           (flow.done == flow.bytes && flow.link->head_out == sizeof(Header));
  }
  static bool Received(const Flow& flow) {
    return flow.link == nullptr ||
           (flow.done == flow.bytes && flow.link->head_in == sizeof(Header));
  }

  // Called when nothing moved: waits, or returns at once for the caller to try
  // again. The second pair may be there for a second peer.
  Status Pause(const Flow& send, const Flow& receive, const Flow& send2 = {},
               const Flow& receive2 = {});
  // Called when something moved after a Pause.
  void Resume() {
    if (paused_) EndPause();
  }

  // Moves both to their end. Large ones are cut over all streams in use, by
  // their number of bytes alone: both ends cut in the same way.
  Status Exchange(Flow send, Flow receive);

  // Aborted after a cut.
  const Status& error() const { return error_; }

  void Cut();
  bool IsCut() const { return cut_.load(std::memory_order_relaxed); }
  void SetAwaited(bool awaited) {
    awaited_.store(awaited, std::memory_order_relaxed);
  }
  // -1: for nobody.
  int waiting_for() const {
    return waiting_for_.load(std::memory_order_relaxed);
  }
  // Peers whose hosts have not answered for more than a second what was sent to
  // them, again and again.
  std::vector<int> Unanswering();

 private:
  // What is waited for.
  using Flows = std::span<const Flow* const>;

  Link* LinkTo(int peer, int stream);
  void Take(Connection connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  size_t Split(const Flow& flow, Flow* parts);
  Status ExchangeSplit(const Flow& send, const Flow& receive);
  Status Wait(Flows sends, Flows receives);
  void BeginPause(MonoTime now, Flows sends, Flows receives);
  void Fail(Status error);
  void Lose(Link* link, int error);
  void CheckHead(Link* link);
  void Inspect(Link* link, int error = 0);
  bool FindMismatch(Link* link, const Header& head);
  Status Block(MonoTime now, Flows sends, Flows receives);
  void SetPolls(Flows sends, Flows receives);
  void EndPause();

  const int rank_;
  const int size_;
  const bool spin_;
  int streams_ = 1;
  // By stream, all peers' first connections first. Changed, under mu_,
  // by the thread that uses the mesh; read by others under it.
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<int> position_of_;  // of a peer, by rank; -1: none
  // By position and stream; null: not there.
  std::vector<std::array<Link*, kMaxStreams>> routes_;
  std::vector<pollfd> polls_;  // one per link, then wake_
  Fd wake_;
  Header head_{};  // of the operation that runs
  MonoTime deadline_{};
  Status error_;

  bool paused_ = false;
  MonoTime paused_at_{};

  std::atomic<bool> cut_{false};
  std::atomic<bool> awaited_{false};
  std::atomic<int> waiting_for_{-1};
  Mutex mu_;
};

}  // namespace lockstep::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_MESH_H_
