#include "worker/collective/shm/acceptor.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>

#include "worker/collective/handshake.h"
#include "worker/collective/shm/layout.h"

namespace lockstep::worker::collective::shm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What a stranger gets; and how long a rank with a wrong key may turn out to
// have been one.
constexpr Duration kPendingTimeout = seconds(2);
constexpr Duration kDoubtTimeout = seconds(1);
constexpr size_t kMostPending = 64 + kMaxRanks;

}  // namespace

Status WrongKey(int theirs, int mine) {
  return WithReason(
      Unauthenticated("wrong job key: rank {} has another key than rank {}",
                      theirs, mine),
      kReasonWrongJobKey);
}

int PollMillis(MonoTime now, MonoTime deadline) {
  const Duration left = deadline - now;
  if (left <= Duration::zero()) return 0;
  return static_cast<int>(std::min<int64_t>(left / milliseconds(1) + 1, 1000));
}

StatusOr<std::vector<Peer>> Acceptor::Receive(MonoTime deadline) {
  for (;;) {
    const MonoTime now = MonotonicNow();
    const bool over = now >= deadline;
    if (!doubtful_.ok() && (over || now >= doubt_ends_)) return doubtful_;
    if (over || !accepted_.empty()) return std::exchange(accepted_, {});
    std::vector<pollfd> waits = {{listener_.get(), POLLIN, 0}};
    MonoTime wake = doubtful_.ok() ? deadline : std::min(deadline, doubt_ends_);
    for (const PendingPeer& peer : pending_) {
      waits.push_back({peer.socket.get(), POLLIN, 0});
      wake = std::min(wake, peer.deadline);
    }
    poll(waits.data(), waits.size(), PollMillis(now, wake));
    for (auto peer = pending_.begin(); peer != pending_.end();) {
      bool leave = false;
      LOCKSTEP_RETURN_IF_ERROR(Advance(&*peer, now, &leave));
      leave = leave || now >= peer->deadline;
      peer = leave ? pending_.erase(peer) : std::next(peer);
    }
    LetIn(now);
  }
}

void Acceptor::LetIn(MonoTime now) {
  for (;;) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr,
                  SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return;
    const auto pid = ProcessOf(fd.get());
    if (!pid.ok()) continue;  // of another user: no word to it
    if (pending_.size() >= kMostPending) pending_.pop_front();
    pending_.push_back(PendingPeer{.socket = std::move(fd),
                                   .pid = *pid,
                                   .deadline = now + kPendingTimeout});
  }
}

Status Acceptor::Advance(PendingPeer* peer, MonoTime now, bool* leave) {
  if (peer->answered) return ReceiveProof(peer, now, leave);
  bool nothing = false;
  Fd file;
  const Status received = ReceiveMessage(peer->socket.get(), &peer->hello,
                                         sizeof(peer->hello), &file, &nothing);
  if (received.ok() && nothing) return OkStatus();
  *leave =
      !received.ok() ||
      !CheckHello(peer->hello, static_cast<int>(options_.hello.size)).ok() ||
      !options_.expects(peer->hello.rank);
  if (*leave) return OkStatus();
  const Answer answer{options_.hello, Prove(options_.key, Role::kAccepts,
                                            peer->hello, options_.hello)};
  *leave = !SendMessage(peer->socket.get(), &answer, sizeof(answer)).ok();
  peer->answered = true;
  return OkStatus();
}

Status Acceptor::ReceiveProof(PendingPeer* peer, MonoTime now, bool* leave) {
  const int socket = peer->socket.get();
  bool nothing = false;
  Proof proof{};
  Fd file;
  const Status received =
      ReceiveMessage(socket, proof.data(), proof.size(), &file, &nothing);
  if (received.ok() && nothing) return OkStatus();
  *leave = true;
  const int rank = static_cast<int>(peer->hello.rank);
  const bool twice = std::any_of(accepted_.begin(), accepted_.end(),
                                 [&](const Peer& g) { return g.rank == rank; });
  if (!received.ok() || twice || !options_.expects(rank)) return OkStatus();
  if (!EqualMacs(proof, Prove(options_.key, Role::kConnects, peer->hello,
                              options_.hello))) {
    if (doubtful_.ok()) doubt_ends_ = now + kDoubtTimeout;
    doubtful_ = WrongKey(rank, static_cast<int>(options_.hello.rank));
    return OkStatus();
  }
  const char welcome = 'W';
  const Status answered = SendMessage(socket, &welcome, 1, options_.memory);
  if (!answered.ok()) return Annotate(answered, fmt::format("rank {}", rank));
  accepted_.push_back(Peer{.rank = rank,
                           .hello = peer->hello,
                           .pid = peer->pid,
                           .socket = std::move(peer->socket),
                           .file = std::move(file)});
  return OkStatus();
}

}  // namespace lockstep::worker::collective::shm
