#include "worker/collective/tcp/link_waiter.h"

namespace lockstep::worker::collective::tcp {
namespace {

// Longer than a peer's change of threads, shorter than a sleep is worth.
constexpr Duration kSpin = std::chrono::microseconds(200);

// Some hundred nanoseconds without a system call: each locks the socket that
// the peer's bytes are to come to.
void Relax() {
#if defined(__x86_64__)
  for (int i = 0; i < 20; ++i) __builtin_ia32_pause();
#endif
}

}  // namespace

// A peer whose header has not come is late: that one is named first.
void LinkWaiter::Begin(MonoTime now, Flows sends, Flows receives) {
  if (waiting_) return;
  waiting_ = true;
  since_ = now;
  const Link* peer = nullptr;
  const Link* late = nullptr;
  for (const Flow* flow : receives) {
    if (flow->received()) continue;
    if (peer == nullptr) peer = flow->link;
    if (late == nullptr && flow->link->head_in < sizeof(Header)) {
      late = flow->link;
    }
  }
  if (late != nullptr) peer = late;
  for (size_t i = 0; peer == nullptr && i < sends.size(); ++i) {
    if (!sends[i]->sent()) peer = sends[i]->link;
  }
  wait_.Begin(peer == nullptr ? -1 : peer->peer);
}

void LinkWaiter::Reset() {
  waiting_ = false;
  wait_.End();
}

bool LinkWaiter::Spin(MonoTime now) const {
  if (!spin_ || now - since_ >= kSpin ||
      !awaited_.load(std::memory_order_relaxed)) {
    return false;
  }
  Relax();
  return true;
}

void LinkWaiter::SetPolls(uint64_t sequence, Flows sends, Flows receives) {
  // Links come and go between operations.
  if (polls_.size() != links_.all().size() + 1) {
    polls_.assign(links_.all().size() + 1, pollfd{-1, 0, 0});
    polls_.back() = {.fd = links_.wake_fd(), .events = POLLIN, .revents = 0};
  }
  for (const auto& link : links_.all()) {
    link->reading = false;
    pollfd& poll = polls_[link->index];
    const bool watched =
        link->stream == 0 && !link->left && link->unwatched != sequence;
    poll.events = watched ? POLLRDHUP : 0;
    poll.revents = 0;
    const bool at_head = link->sequence != sequence || link->head_in == 0;
    if (watched && at_head && link->quiet != sequence) {
      poll.events |= POLLIN;
    }
    // The kernel reports errors of any socket that it is given.
    poll.fd = watched ? link->fd.get() : -1;
  }
  const auto add = [&](const Link& link, short event) {
    pollfd& poll = polls_[link.index];
    poll.fd = link.fd.get();
    poll.events |= event;
  };
  for (const Flow* flow : sends) {
    if (!flow->sent()) add(*flow->link, POLLOUT);
  }
  for (const Flow* flow : receives) {
    if (flow->received()) continue;
    add(*flow->link, POLLIN);
    flow->link->reading = true;
  }
}

bool LinkWaiter::Sleep(uint64_t sequence, Duration timeout, Flows sends,
                       Flows receives) {
  SetPolls(sequence, sends, receives);
  const timespec limit = {
      .tv_sec = timeout / std::chrono::seconds(1),
      .tv_nsec = (timeout % std::chrono::seconds(1)).count()};
  return ppoll(polls_.data(), polls_.size(), &limit, nullptr) > 0;
}

}  // namespace lockstep::worker::collective::tcp
