// How a rank waits for its peers: it spins for a moment where another thread
// awaits the result, then sleeps in poll(2).
//
// A rank that waits watches the first connection with each peer: the end of any
// of them ends the operation, and a header of another operation with the same
// number is found also on a connection that this operation does not use.
// Further connections (Plan::streams) are polled only while bytes are to come
// or to go over them.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_LINK_WAITER_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_LINK_WAITER_H_

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "worker/collective/peer_wait.h"
#include "worker/collective/tcp/links.h"
#include "worker/collective/tcp/wire.h"

namespace lockstep::worker::collective::tcp {

// Bytes to one peer or from it; an empty flow has no link.
struct Flow {
  Link* link = nullptr;
  char* data = nullptr;
  size_t bytes = 0;
  size_t done = 0;

  // All bytes, and the header before them, have gone.
  bool sent() const {
    return link == nullptr ||
           (done == bytes && link->head_out == sizeof(Header));
  }
  // All bytes, and the header before them, have come.
  bool received() const {
    return link == nullptr ||
           (done == bytes && link->head_in == sizeof(Header));
  }
};
using Flows = std::span<const Flow* const>;

// Used by one thread at a time, except SetAwaited and current_wait, which any
// thread may call.
class LinkWaiter {
 public:
  // `links` outlive it. `spin`: an awaited thread may spin briefly.
  LinkWaiter(const Links* links, bool spin) : links_(*links), spin_(spin) {}

  // The rank waits from now on, unless it did already; notes for which peer.
  void Begin(MonoTime now, Flows sends, Flows receives);
  void End() {
    if (waiting_) Reset();
  }
  // True: it has spun for a moment, try again. False: it is time to sleep.
  bool Spin(MonoTime now) const;
  // Sleeps until a flow can move, a watched connection has news, or all is cut.
  // `sequence`: of the operation that runs. False after `timeout`, and when
  // interrupted.
  bool Sleep(uint64_t sequence, Duration timeout, Flows sends, Flows receives);
  // After Sleep: the events of poll(2) on `link`.
  short seen(const Link& link) const { return polls_[link.index].revents; }

  void SetAwaited(bool awaited) {
    awaited_.store(awaited, std::memory_order_relaxed);
  }
  PeerWait current_wait() const { return wait_.Get(); }

 private:
  void Reset();
  void SetPolls(uint64_t sequence, Flows sends, Flows receives);

  const Links& links_;
  const bool spin_;
  std::vector<pollfd> polls_;  // one per link, then the links' wake_fd
  bool waiting_ = false;
  MonoTime since_{};
  std::atomic<bool> awaited_{false};
  CurrentPeerWait wait_;
};

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_LINK_WAITER_H_
