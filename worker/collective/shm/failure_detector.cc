#include "worker/collective/shm/failure_detector.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "worker/collective/lost_peers.h"
#include "worker/collective/shm/doorbell.h"

namespace lockstep::worker::collective::shm {
namespace {

constexpr char kGoodbye = 'B';

void WriteExitMessage(Control* control, const Status& reason) {
  const std::string text = Message(reason);
  const size_t size = std::min(text.size(), kExitMessageBytes - 1);
  std::memcpy(control->exit_message, text.data(), size);
  control->exit_message[size] = '\0';
  control->ended.store(1 + static_cast<uint32_t>(reason.code()),
                       std::memory_order_release);
}

// Printable, whatever a peer wrote.
std::string ReadExitMessage(const Control& control) {
  char copy[kExitMessageBytes];
  std::memcpy(copy, control.exit_message, sizeof(copy));
  std::string text(copy, strnlen(copy, sizeof(copy)));
  for (char& c : text) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return text;
}

}  // namespace

FailureDetector::FailureDetector(std::string label, int rank,
                                 const std::vector<Member>* members,
                                 BrokenFunction broken)
    : label_(std::move(label)),
      rank_(rank),
      members_(*members),
      broken_function_(std::move(broken)),
      left_(members->size()) {}

Status FailureDetector::Watch() {
  stop_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_) return ErrnoStatus(errno, "making an eventfd");
  try {
    thread_ = std::thread([this] { WatchLoop(); });
  } catch (const std::system_error& e) {
    return ResourceExhausted("no thread to watch the peers: {}", e.what());
  }
  return OkStatus();
}

FailureDetector::~FailureDetector() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof(one));
    thread_.join();
  }
  if (broken()) return;
  for (const Member& member : members_) {
    if (!member.socket) continue;
    (void)!send(member.socket.get(), &kGoodbye, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

Status FailureDetector::status() const {
  MutexLock lock(&mu_);
  return reason_;
}

void FailureDetector::Break(const Status& reason) { BreakAs(reason, false); }

void FailureDetector::BreakAs(const Status& reason, bool by_peer) {
  {
    MutexLock lock(&mu_);
    if (!reason_.ok()) {
      // Now this rank wants no more.
      if (!by_peer) by_peer_.store(false, std::memory_order_release);
      return;
    }
    reason_ = reason;
    by_peer_.store(by_peer, std::memory_order_release);
    WriteExitMessage(members_[rank_].segment.control(), reason_);
    broken_.store(true, std::memory_order_release);
  }
  for (const Member& member : members_) {
    if (member.socket) shutdown(member.socket.get(), SHUT_RDWR);
  }
  WakeSelf();
  if (broken_function_) broken_function_(reason);
}

void FailureDetector::WakeSelf() {
  Shared<uint32_t>* const word = &members_[rank_].segment.control()->waiting;
  // See layout.h: what was learned comes before the look at the word.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (word->exchange(wait_code::kAwake, std::memory_order_seq_cst) !=
      wait_code::kAwake) {
    WakeOn(word);
  }
}

void FailureDetector::WatchLoop() {
  const size_t n = members_.size();
  // [0]: stop; then the sockets and the processes, by rank.
  std::vector<pollfd> waits(1 + 2 * n, pollfd{-1, 0, 0});
  waits[0] = {stop_.get(), POLLIN, 0};
  for (size_t rank = 0; rank < n; ++rank) {
    waits[1 + rank] = {members_[rank].socket.get(), POLLIN | POLLRDHUP, 0};
    waits[1 + n + rank] = {members_[rank].process.get(), POLLIN, 0};
  }
  while (!broken()) {
    if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) return;
    if (waits[0].revents != 0) return;
    for (size_t rank = 0; rank < n; ++rank) {
      pollfd& socket = waits[1 + rank];
      pollfd& process = waits[1 + n + rank];
      if (socket.fd < 0 || (socket.revents | process.revents) == 0) continue;
      bool more = Listen(static_cast<int>(rank));
      if (more && process.revents != 0) {
        // All that it said was received before.
        if (!HasLeft(static_cast<int>(rank))) PeerDied(static_cast<int>(rank));
        more = false;
      }
      if (!more) socket.fd = process.fd = -1;
      socket.revents = process.revents = 0;
    }
  }
}

bool FailureDetector::Listen(int rank) {
  for (;;) {
    char word = 0;
    const ssize_t got =
        recv(members_[rank].socket.get(), &word, 1, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got == 1 && word == kGoodbye) {
      left_[rank].store(true, std::memory_order_release);
      WakeSelf();
      return false;
    }
    PeerDied(rank);
    return false;
  }
}

void FailureDetector::PeerDied(int rank) {
  const Control& control = *members_[rank].segment.control();
  const uint32_t ended = control.ended.load(std::memory_order_acquire);
  if (ended == 0) {
    return BreakAs(
        WithLostPeers(Unavailable("{}: the connection to rank {} is lost: its "
                                  "process died",
                                  label_, rank),
                      {rank}),
        true);
  }
  const std::string words = ReadExitMessage(control);
  const auto code = static_cast<StatusCode>(ended - 1);
  // A mismatch concerns all, and the sentence is the same for all.
  if (code == StatusCode::kFailedPrecondition) {
    return Break(FailedPrecondition("{}", words));
  }
  BreakAs(Unavailable("{}: the connection to rank {} is lost; it reported: {}",
                      label_, rank, words),
          true);
}

}  // namespace lockstep::worker::collective::shm
