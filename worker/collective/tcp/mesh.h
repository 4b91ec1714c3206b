// The connections of one rank, and how bytes move over them: without blocking,
// straight from and into the caller's memory, with a header before the bytes
// of each operation (wire.h).
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_MESH_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_MESH_H_

#include <cstddef>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/tcp/connect.h"
#include "worker/collective/tcp/link_waiter.h"
#include "worker/collective/tcp/links.h"
#include "worker/collective/tcp/wire.h"

namespace lockstep::worker::collective::tcp {

// Used by one thread at a time. links() and waiter() have the calls for other
// threads.
class Mesh {
 public:
  // `connections`: as ConnectPeers returns them. `spin`: an awaited thread may
  // spin briefly.
  Mesh(int rank, int size, std::vector<Connection> connections, bool spin);

  int rank() const { return rank_; }
  int size() const { return size_; }
  Links* links() { return &links_; }
  LinkWaiter* waiter() { return &waiter_; }

  // Begins the next operation. After an error of the mesh all operations fail.
  void Begin(const Operation& operation, MonoTime deadline,
             Purpose purpose = Purpose::kCaller);

  // A flow over the connection `stream` to `peer`, which exists. `data` of To
  // is only read.
  Flow To(int peer, const void* data, size_t bytes, int stream = 0);
  Flow From(int peer, void* data, size_t bytes, int stream = 0);

  // Move what goes without waiting; true when something moved. On an error
  // nothing moves, and Pause returns it.
  bool Send(Flow* flow);
  bool Receive(Flow* flow);

  // Called when nothing moved: waits, or returns at once for the caller to try
  // again. The second pair may be for a second peer.
  Status Pause(const Flow& send, const Flow& receive, const Flow& send2 = {},
               const Flow& receive2 = {});
  // Called when something moved after a Pause.
  void Resume() { waiter_.End(); }

  // Moves both to their end. Large flows are split over all streams in use, by
  // their number of bytes alone: both ends split in the same way.
  Status Exchange(Flow send, Flow receive);
  // The same of many flows at once: each peer's as far as it can go.
  Status ExchangeAll(std::span<const Flow> sends,
                     std::span<const Flow> receives);

  // Aborted after a cut.
  const Status& error() const { return error_; }

 private:
  Link* LinkTo(int peer, int stream);
  void Split(const Flow& flow, std::vector<Flow>* parts);
  Status Wait(Flows sends, Flows receives);
  Status Block(MonoTime now, Flows sends, Flows receives);
  void Fail(Status error);
  void Lose(Link* link, int error);
  void CheckHead(Link* link);
  void Inspect(Link* link, int error = 0);
  bool FindMismatch(Link* link, const Header& head);

  const int rank_;
  const int size_;
  Links links_;
  LinkWaiter waiter_;
  Header head_{};  // of the operation that runs
  MonoTime deadline_{};
  Status error_;
};

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_MESH_H_
