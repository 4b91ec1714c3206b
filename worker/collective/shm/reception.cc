#include "worker/collective/shm/reception.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>

#include "worker/collective/handshake.h"
#include "worker/collective/shm/layout.h"

namespace lockstep::shm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What a stranger gets; and how long a rank with a wrong key may turn out to
// have been one.
constexpr Duration kStrangersTime = seconds(2);
constexpr Duration kBenefitOfDoubt = seconds(1);
constexpr size_t kMostVisitors = 64 + kMaxRanks;

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

StatusOr<std::vector<Guest>> Reception::Receive(MonoTime deadline) {
  for (;;) {
    const MonoTime now = MonotonicNow();
    const bool over = now >= deadline;
    if (!doubtful_.ok() && (over || now >= doubt_ends_)) return doubtful_;
    if (over || !guests_.empty()) return std::exchange(guests_, {});
    std::vector<pollfd> waits = {{listener_.get(), POLLIN, 0}};
    MonoTime wake = doubtful_.ok() ? deadline : std::min(deadline, doubt_ends_);
    for (const Visitor& visitor : visitors_) {
      waits.push_back({visitor.socket.get(), POLLIN, 0});
      wake = std::min(wake, visitor.deadline);
    }
    poll(waits.data(), waits.size(), PollMillis(now, wake));
    for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
      bool leave = false;
      LOCKSTEP_RETURN_IF_ERROR(Hear(&*visitor, now, &leave));
      leave = leave || now >= visitor->deadline;
      visitor = leave ? visitors_.erase(visitor) : std::next(visitor);
    }
    LetIn(now);
  }
}

void Reception::LetIn(MonoTime now) {
  for (;;) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr,
                  SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return;
    const auto pid = ProcessOf(fd.get());
    if (!pid.ok()) continue;  // of another user: no word to it
    if (visitors_.size() >= kMostVisitors) visitors_.pop_front();
    visitors_.push_back(Visitor{.socket = std::move(fd),
                                .pid = *pid,
                                .deadline = now + kStrangersTime});
  }
}

Status Reception::Hear(Visitor* visitor, MonoTime now, bool* leave) {
  if (visitor->greeted) return HearProof(visitor, now, leave);
  bool nothing = false;
  Fd file;
  const Status heard = ReceiveMessage(visitor->socket.get(), &visitor->hello,
                                      sizeof(visitor->hello), &file, &nothing);
  if (heard.ok() && nothing) return OkStatus();
  *leave =
      !heard.ok() ||
      !CheckHello(visitor->hello, static_cast<int>(options_.hello.size)).ok() ||
      !options_.expects(visitor->hello.rank);
  if (*leave) return OkStatus();
  const Answer answer{options_.hello, Prove(options_.key, Role::kAccepts,
                                            visitor->hello, options_.hello)};
  *leave = !SendMessage(visitor->socket.get(), &answer, sizeof(answer)).ok();
  visitor->greeted = true;
  return OkStatus();
}

Status Reception::HearProof(Visitor* visitor, MonoTime now, bool* leave) {
  const int socket = visitor->socket.get();
  bool nothing = false;
  Proof proof{};
  Fd file;
  const Status heard =
      ReceiveMessage(socket, proof.data(), proof.size(), &file, &nothing);
  if (heard.ok() && nothing) return OkStatus();
  *leave = true;
  const int rank = static_cast<int>(visitor->hello.rank);
  const bool twice =
      std::any_of(guests_.begin(), guests_.end(),
                  [&](const Guest& g) { return g.rank == rank; });
  if (!heard.ok() || twice || !options_.expects(rank)) return OkStatus();
  if (!EqualMacs(proof, Prove(options_.key, Role::kConnects, visitor->hello,
                              options_.hello))) {
    if (doubtful_.ok()) doubt_ends_ = now + kBenefitOfDoubt;
    doubtful_ = WrongKey(rank, static_cast<int>(options_.hello.rank));
    return OkStatus();
  }
  const char welcome = 'W';
  const Status answered = SendMessage(socket, &welcome, 1, options_.memory);
  if (!answered.ok()) return Annotate(answered, fmt::format("rank {}", rank));
  guests_.push_back(Guest{.rank = rank,
                          .hello = visitor->hello,
                          .pid = visitor->pid,
                          .socket = std::move(visitor->socket),
                          .file = std::move(file)});
  return OkStatus();
}

}  // namespace lockstep::shm
