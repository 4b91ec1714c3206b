#include "worker/collective/tcp/peer_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "worker/collective/tcp/wire.h"

namespace lockstep::worker::collective::tcp {
namespace {

// Before a look at what has ended, and between two at what cannot be told yet.
// Who hears of the first death in another way, by its name, is to be first: the
// end of a connection may only follow from it.
constexpr int kLookMilliseconds = 10;

enum class End { kGoodbye, kLost, kUnclear };

// Of a connection that ended. `reset`: by its end or ours, not in order.
// Without taking what came. `error` as PeerWatch's.
End Look(int socket, bool reset, int* error) {
  Header head;
  const ssize_t size =
      recv(socket, &head, sizeof(head), MSG_PEEK | MSG_DONTWAIT);
  if (size == static_cast<ssize_t>(sizeof(head)) && IsGoodbye(head)) {
    return End::kGoodbye;
  }
  // Bytes of an operation that this rank has not begun: what lies behind them
  // cannot be seen.
  if (size > 0 && !reset) return End::kUnclear;
  *error = size < 0 ? errno : 0;
  socklen_t length = sizeof(*error);
  // Behind such bytes a reset is still to be asked for.
  if (size > 0) getsockopt(socket, SOL_SOCKET, SO_ERROR, error, &length);
  return End::kLost;
}

}  // namespace

PeerWatch::PeerWatch(std::vector<Peer> peers, std::function<bool()> busy,
                     std::function<void(int, int)> lost)
    : peers_(std::move(peers)),
      busy_(std::move(busy)),
      lost_(std::move(lost)) {}

Status PeerWatch::Start() {
  stop_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_) return ErrnoStatus(errno, "making an eventfd");
  try {
    thread_ = std::thread([this] { Loop(); });
  } catch (const std::system_error& e) {
    return ResourceExhausted("no thread to watch the peers: {}", e.what());
  }
  return OkStatus();
}

PeerWatch::~PeerWatch() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

void PeerWatch::Loop() {
  struct Ended {
    Peer peer;
    bool reset;
  };
  std::vector<Ended> ended;  // and not settled
  std::vector<pollfd> polls;
  for (const Peer& peer : peers_) polls.push_back({peer.socket, POLLRDHUP, 0});
  polls.push_back({stop_.get(), POLLIN, 0});
  for (;;) {
    const int timeout = ended.empty() ? -1 : kLookMilliseconds;
    if (poll(polls.data(), polls.size(), timeout) < 0) continue;
    if (polls.back().revents != 0) return;
    bool fresh = false;
    for (size_t i = 0; i < peers_.size(); ++i) {
      const short seen = std::exchange(polls[i].revents, 0);
      if (polls[i].fd < 0 || seen == 0) continue;
      polls[i].fd = -1;
      fresh = true;
      ended.push_back({peers_[i], (seen & (POLLERR | POLLHUP)) != 0});
    }
    if (fresh || busy_()) continue;
    for (size_t i = ended.size(); i-- > 0;) {
      int error = 0;
      const End end = Look(ended[i].peer.socket, ended[i].reset, &error);
      if (end == End::kUnclear) continue;
      if (end == End::kLost) return lost_(ended[i].peer.rank, error);
      ended.erase(ended.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

}  // namespace lockstep::worker::collective::tcp
