#include "worker/collective/tcp/connect.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <list>
#include <string_view>

#include "worker/collective/lost_peers.h"
#include "worker/collective/sockets.h"

namespace lockstep::worker::collective::tcp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Accepted connections that have not proven anything, and how long they may
// take. The oldest goes when another comes.
constexpr size_t kMaxStrangers = 128;
constexpr Duration kProveWithin = seconds(2);
constexpr Duration kRetryAfter = milliseconds(20);

socklen_t SizeOfAddress(const sockaddr_storage& address) {
  return address.ss_family == AF_INET ? sizeof(sockaddr_in)
                                      : sizeof(sockaddr_in6);
}

void SetPort(sockaddr_storage* address, uint16_t port) {
  if (address->ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
  }
}

uint16_t PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET
                   ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                   : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

const sockaddr* Plain(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

Fd NewSocket(int family) {
  return Fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Within a host there is no line to share. BBR, which some systems take for
// every connection, would still spread the packets over time, and every ten
// seconds let no more than four be on their way for 200 ms (PROBE_RTT,
// net/ipv4/tcp_bbr.c). Reno is in every kernel, and allowed to everybody.
// Before a connection is made: a socket that BBR has had stays paced. What is
// not set costs time only.
void TakeReno(int fd) {
  constexpr std::string_view kReno = "reno";
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size());
}

// What it has from its listener is for peers of this host.
void TakeUsualFrom(int fd, int family) {
  SocketEnds ends;
  if (!GetEnds(fd, &ends) || IsWithinHost(ends)) return;
  const Fd fresh = NewSocket(family);
  char usual[16];
  socklen_t size = sizeof(usual);
  if (getsockopt(fresh.get(), IPPROTO_TCP, TCP_CONGESTION, usual, &size) == 0) {
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, usual, size);
  }
}

// One connection on its way, from either end.
struct Attempt {
  Fd fd;
  int peer = -1;  // -1: accepted, has not said who it is
  int stream = 0;
  bool connecting = false;
  MonoTime deadline = {};
  // What is read next goes into `hello` (acceptor) or `challenge` (connector),
  // then `proof` (acceptor).
  size_t got = 0;
  bool answered = false;
  Hello hello{};
  Challenge challenge{};
  Proof proof{};
};

enum class Progress { kWaits, kDone, kDrop };

// Reads on until `bytes` are there.
Progress Read(Attempt* attempt, void* to, size_t bytes) {
  while (attempt->got < bytes) {
    const ssize_t n =
        recv(attempt->fd.get(), static_cast<char*>(to) + attempt->got,
             bytes - attempt->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Progress::kWaits;
    if (n <= 0) return Progress::kDrop;
    attempt->got += n;
  }
  attempt->got = 0;
  return Progress::kDone;
}

// A fresh connection takes these few bytes at once, or is of no use.
template <typename T>
bool Write(const Attempt& attempt, const T& message) {
  return send(attempt.fd.get(), &message, sizeof(message),
              MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(message);
}

class Connector {
 public:
  Connector(const Neighbours& neighbours, StreamRange streams,
            const Listener& listener, MonoTime deadline, int stop)
      : rank_(neighbours.rank),
        peers_(neighbours.peers),
        places_(neighbours.places),
        secret_(neighbours.secret),
        streams_(streams),
        listener_(listener),
        deadline_(deadline),
        stop_(stop),
        sockets_(peers_.size() * (streams.end - streams.first)),
        missing_(sockets_.size()) {}
  // Who gives up cuts off those that it had connected with: not every end is
  // that of a process.
  ~Connector() {
    for (const Fd& fd : sockets_) {
      if (fd) ResetConnection(fd.get());
    }
  }
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  StatusOr<std::vector<Connection>> Run() {
    for (const int peer : peers_) {
      for (int stream = streams_.first; stream < streams_.end; ++stream) {
        if (peer > rank_) retries_.push_back({peer, stream, MonoTime{}});
      }
    }
    while (missing_ > 0) {
      const MonoTime now = MonotonicNow();
      if (now >= deadline_) return Missing();
      LOCKSTEP_RETURN_IF_ERROR(StartRetries(now));
      DropLate(now);
      Wait(now);
      if (polls_[1].revents != 0) return Aborted("it was cut off");
      if ((polls_[0].revents & POLLIN) != 0) Accept();
      LOCKSTEP_RETURN_IF_ERROR(Advance());
    }
    std::vector<Connection> connections;
    for (const int peer : peers_) {
      for (int stream = streams_.first; stream < streams_.end; ++stream) {
        connections.push_back(
            {peer, stream, std::move(*SocketOf(peer, stream))});
      }
    }
    return connections;
  }

 private:
  struct Retry {
    int peer;
    int stream;
    MonoTime at;
  };

  // Null for who is no peer, or not to have this connection.
  Fd* SocketOf(int peer, int64_t stream) {
    const auto it = std::lower_bound(peers_.begin(), peers_.end(), peer);
    if (it == peers_.end() || *it != peer || stream < streams_.first ||
        stream >= streams_.end) {
      return nullptr;
    }
    const size_t count = streams_.end - streams_.first;
    return &sockets_[(it - peers_.begin()) * count + (stream - streams_.first)];
  }

  const Place& PlaceOf(int peer) const {
    return places_[std::lower_bound(peers_.begin(), peers_.end(), peer) -
                   peers_.begin()];
  }

  Status Missing() {
    std::string missing;
    std::vector<int> ranks;
    const size_t count = streams_.end - streams_.first;
    for (size_t i = 0; i < peers_.size(); ++i) {
      const auto first = sockets_.begin() + i * count;
      if (std::all_of(first, first + count,
                      [](const Fd& fd) { return static_cast<bool>(fd); })) {
        continue;
      }
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", peers_[i]);
      ranks.push_back(peers_[i]);
    }
    return WithLostPeers(
        Unavailable("rank {} went away while forming: it did not connect{}",
                    missing, refused_.empty() ? "" : "; " + refused_),
        ranks);
  }

  Status StartRetries(MonoTime now) {
    for (size_t i = retries_.size(); i > 0; --i) {
      const Retry retry = retries_.front();
      retries_.pop_front();
      if (retry.at > now) {
        retries_.push_back(retry);
        continue;
      }
      LOCKSTEP_RETURN_IF_ERROR(StartConnecting(retry, now));
    }
    return OkStatus();
  }

  Status StartConnecting(const Retry& to_whom, MonoTime now) {
    const Place& place = PlaceOf(to_whom.peer);
    LOCKSTEP_ASSIGN_OR_RETURN(sockaddr_storage to, ParseAddress(place.address));
    SetPort(&to, place.port);
    Attempt attempt;
    attempt.fd = NewSocket(to.ss_family);
    if (!attempt.fd) return ErrnoStatus(errno, "opening a socket");
    // From the address of the data plane, too.
    const int one = 1;
    setsockopt(attempt.fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one,
               sizeof(one));
    if (bind(attempt.fd.get(), Plain(listener_.address),
             SizeOfAddress(listener_.address)) != 0) {
      return ErrnoStatus(errno, "binding to the data address");
    }
    if (IsWithinHost({.local = listener_.address, .remote = to})) {
      TakeReno(attempt.fd.get());
    }
    attempt.peer = to_whom.peer;
    attempt.stream = to_whom.stream;
    attempt.connecting = true;
    attempt.deadline = now + kProveWithin;
    if (connect(attempt.fd.get(), Plain(to), SizeOfAddress(to)) != 0 &&
        errno != EINPROGRESS) {
      return CannotConnect(to_whom.peer, to_whom.stream, errno);
    }
    attempts_.push_back(std::move(attempt));
    return OkStatus();
  }

  // A rank listens before it publishes its address.
  Status CannotConnect(int peer, int stream, int error) {
    if (error == ETIMEDOUT || error == EAGAIN || error == EADDRNOTAVAIL) {
      retries_.push_back({peer, stream, MonotonicNow() + kRetryAfter});
      return OkStatus();
    }
    return WithLostPeers(
        Unavailable("rank {} went away while forming: cannot connect to {} "
                    "port {} ({})",
                    peer, PlaceOf(peer).address, PlaceOf(peer).port,
                    std::strerror(error)),
        {peer});
  }

  void DropLate(MonoTime now) {
    for (auto it = attempts_.begin(); it != attempts_.end();) {
      it = now >= it->deadline ? Drop(it) : std::next(it);
    }
  }

  std::list<Attempt>::iterator Drop(std::list<Attempt>::iterator it) {
    // Ours is tried again: the peer was busy with others.
    if (it->peer > rank_) {
      retries_.push_back({it->peer, it->stream, MonotonicNow() + kRetryAfter});
    }
    return attempts_.erase(it);
  }

  void Wait(MonoTime now) {
    polls_.clear();
    for (const int fd : {listener_.fd.get(), stop_}) {
      polls_.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    }
    MonoTime until = deadline_;
    for (const Attempt& attempt : attempts_) {
      const short events = attempt.connecting ? POLLOUT : POLLIN;
      polls_.push_back(
          {.fd = attempt.fd.get(), .events = events, .revents = 0});
      until = std::min(until, attempt.deadline);
    }
    for (const Retry& retry : retries_) until = std::min(until, retry.at);
    const auto left = std::chrono::ceil<milliseconds>(until - now).count();
    (void)poll(polls_.data(), polls_.size(),
               static_cast<int>(std::clamp<int64_t>(left, 0, 1000)));
  }

  void Accept() {
    // Bounded, so that a flood does not keep the others waiting.
    for (int i = 0; i < 64; ++i) {
      Attempt attempt;
      attempt.fd = Fd(accept4(listener_.fd.get(), nullptr, nullptr,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!attempt.fd) {
        if (errno == EMFILE || errno == ENFILE) DropOldestStranger();
        return;
      }
      TakeUsualFrom(attempt.fd.get(), listener_.address.ss_family);
      attempt.deadline = MonotonicNow() + kProveWithin;
      attempts_.push_back(std::move(attempt));
      if (attempts_.size() > kMaxStrangers + sockets_.size()) {
        DropOldestStranger();
      }
    }
  }

  void DropOldestStranger() {
    for (auto it = attempts_.begin(); it != attempts_.end(); ++it) {
      if (it->peer >= 0) continue;
      attempts_.erase(it);
      return;
    }
  }

  // New attempts are at the end; for those without a poll nothing is lost.
  Status Advance() {
    size_t index = 2;
    for (auto it = attempts_.begin(); it != attempts_.end(); ++index) {
      if (index < polls_.size() && it->fd.get() == polls_[index].fd &&
          polls_[index].revents == 0) {
        ++it;
        continue;
      }
      Progress progress = Progress::kWaits;
      LOCKSTEP_RETURN_IF_ERROR(it->peer > rank_
                                   ? AdvanceOurs(&*it, &progress)
                                   : AdvanceTheirs(&*it, &progress));
      if (progress == Progress::kDrop) {
        it = Drop(it);
      } else if (progress == Progress::kDone) {
        Keep(&*it);
        it = attempts_.erase(it);
      } else {
        ++it;
      }
    }
    return OkStatus();
  }

  Status AdvanceOurs(Attempt* attempt, Progress* progress) {
    if (attempt->connecting) {
      int error = 0;
      socklen_t size = sizeof(error);
      getsockopt(attempt->fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) {
        LOCKSTEP_RETURN_IF_ERROR(
            CannotConnect(attempt->peer, attempt->stream, error));
        // CannotConnect has put it among the retries.
        attempt->peer = -1;
        *progress = Progress::kDrop;
        return OkStatus();
      }
      sockaddr_storage peer;
      size = sizeof(peer);
      if (getpeername(attempt->fd.get(), reinterpret_cast<sockaddr*>(&peer),
                      &size) != 0) {
        return OkStatus();
      }
      attempt->connecting = false;
      attempt->hello = MakeHello(rank_, attempt->peer, attempt->stream);
      if (!Write(*attempt, attempt->hello)) *progress = Progress::kDrop;
      return OkStatus();
    }
    *progress = Read(attempt, &attempt->challenge, sizeof(attempt->challenge));
    if (*progress != Progress::kDone) return OkStatus();
    // Also a wrong proof is sent: the peer can then say why.
    const bool sent =
        Write(*attempt, Answer(secret_, attempt->hello, attempt->challenge));
    if (!Proves(secret_, attempt->hello, attempt->challenge)) {
      return Unauthenticated(
          "rank {} does not have the key of rank {}: one of them is of another "
          "job or generation",
          attempt->peer, rank_);
    }
    if (!sent) *progress = Progress::kDrop;
    return OkStatus();
  }

  Status AdvanceTheirs(Attempt* attempt, Progress* progress) {
    if (!attempt->answered) {
      *progress = Read(attempt, &attempt->hello, sizeof(attempt->hello));
      if (*progress != Progress::kDone) return OkStatus();
      *progress = Progress::kDrop;
      const Hello& hello = attempt->hello;
      if (!IsHello(hello) || hello.to != static_cast<uint32_t>(rank_) ||
          hello.from >= static_cast<uint32_t>(rank_) ||
          SocketOf(static_cast<int>(hello.from), hello.stream) == nullptr) {
        return OkStatus();
      }
      attempt->challenge = Answer(secret_, hello);
      attempt->answered = true;
      if (Write(*attempt, attempt->challenge)) *progress = Progress::kWaits;
      return OkStatus();
    }
    *progress = Read(attempt, &attempt->proof, sizeof(attempt->proof));
    if (*progress != Progress::kDone) return OkStatus();
    const int from = static_cast<int>(attempt->hello.from);
    if (!Proves(secret_, attempt->hello, attempt->challenge, attempt->proof)) {
      refused_ = fmt::format(
          "one that said it is rank {} does not have the key of rank {}", from,
          rank_);
      *progress = Progress::kDrop;
      return OkStatus();
    }
    attempt->peer = from;
    attempt->stream = static_cast<int>(attempt->hello.stream);
    return OkStatus();
  }

  void Keep(Attempt* attempt) {
    Fd* const socket = SocketOf(attempt->peer, attempt->stream);
    // A second one is of a peer that gave up the first.
    if (!*socket) --missing_;
    const int one = 1;
    setsockopt(attempt->fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    *socket = std::move(attempt->fd);
  }

  const int rank_;
  const std::vector<int>& peers_;
  const std::vector<Place>& places_;
  const Secret& secret_;
  const StreamRange streams_;
  const Listener& listener_;
  const MonoTime deadline_;
  const int stop_;
  std::vector<Fd> sockets_;  // by peer and stream
  size_t missing_;
  std::list<Attempt> attempts_;
  std::deque<Retry> retries_;
  std::vector<pollfd> polls_;  // the listener, stop_, then attempts_
  std::string refused_;
};

}  // namespace

StatusOr<Listener> Listen(const std::string& address) {
  Listener listener;
  LOCKSTEP_ASSIGN_OR_RETURN(listener.address, ParseAddress(address));
  if (IsAnyAddress(listener.address)) {
    return InvalidArgument(
        "the data plane is not bound to every address; give the one of the "
        "data network");
  }
  listener.fd = NewSocket(listener.address.ss_family);
  if (listener.fd) TakeReno(listener.fd.get());
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (!listener.fd ||
      bind(listener.fd.get(), Plain(listener.address),
           SizeOfAddress(listener.address)) != 0 ||
      listen(listener.fd.get(), SOMAXCONN) != 0 ||
      getsockname(listener.fd.get(), reinterpret_cast<sockaddr*>(&bound),
                  &size) != 0) {
    return InvalidArgument("cannot bind to {}: {}", address,
                           std::strerror(errno));
  }
  listener.port = PortOf(bound);
  return listener;
}

StatusOr<std::vector<Connection>> ConnectPeers(const Neighbours& neighbours,
                                               StreamRange streams,
                                               const Listener& listener,
                                               MonoTime deadline, int stop) {
  return Connector(neighbours, streams, listener, deadline, stop).Run();
}

Status ConnectionLost(int peer, int error) {
  const Status lost =
      Unavailable("the connection to rank {} is lost ({})", peer,
                  error == 0 ? "it ended" : std::strerror(error));
  return error == ECONNRESET ? lost : WithLostPeers(lost, {peer});
}

}  // namespace lockstep::worker::collective::tcp
