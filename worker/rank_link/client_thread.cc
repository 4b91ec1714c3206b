// The thread of a RankLink: connects, reads, writes, repeats.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/version.h"
#include "worker/rank_link/client_impl.h"
#include "worker/rank_link/packet.h"
#include "worker/rank_link/protocol.h"

namespace lockstep::worker::rank_link {
namespace {

using std::chrono::milliseconds;

constexpr Duration kFirstBackoff = milliseconds(10);
constexpr Duration kLastBackoff = milliseconds(1000);
constexpr Duration kClosingTime = milliseconds(200);
constexpr size_t kMaxQueuedReports = 4096;

// Until `fd` (-1: none) is ready, `wake` is written to, or `timeout`.
void Sleep(int wake, int fd, short events, Duration timeout) {
  pollfd waited[2] = {{wake, POLLIN, 0}, {fd, events, 0}};
  const auto ms = std::chrono::ceil<milliseconds>(timeout);
  ::poll(waited, fd < 0 ? 1 : 2, static_cast<int>(ms.count()));
  uint64_t count;
  (void)!::read(wake, &count, sizeof(count));
}

}  // namespace

void RankLink::Impl::Start() {
  // The program's signals are for its own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Loop(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

RankLink::Impl::~Impl() {
  {
    MutexLock lock(&mu_);
    stop_at_ = MonotonicNow() + kClosingTime;
  }
  Wake();
  if (thread_.joinable()) thread_.join();
}

void RankLink::Impl::Wake() {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
}

void RankLink::Impl::Loop() {
  Duration backoff = kFirstBackoff;
  while (true) {
    if (callbacks_.tick) callbacks_.tick();
    bool wants_write = false;
    {
      MutexLock lock(&mu_);
      wants_write = connected_ && !out_.empty();
      if (stop_at_ && (!wants_write || MonotonicNow() >= *stop_at_)) break;
      // A refused rank has no one to talk to.
      if (IsRefusal(over_) && !fd_) break;
    }
    if (!fd_) {
      if (TryConnect()) continue;
      Sleep(wake_.get(), -1, 0, backoff);
      backoff = std::min(2 * backoff, kLastBackoff);
      continue;
    }
    Sleep(wake_.get(), fd_.get(),
          static_cast<short>(POLLIN | (wants_write ? POLLOUT : 0)),
          kLastBackoff);
    // What it said before it closed is read in any case.
    const bool sent = Send();
    if (!Receive() || !sent) {
      MutexLock lock(&mu_);
      Disconnect();
    }
    MutexLock lock(&mu_);
    if (connected_) backoff = kFirstBackoff;
  }
  // A forked child may hold the socket, too: the daemon is to see the end.
  if (fd_) ::shutdown(fd_.get(), SHUT_RDWR);
  fd_.Reset();
  MutexLock lock(&mu_);
  connected_ = false;
  changed_.NotifyAll();
}

bool RankLink::Impl::TryConnect() {
  StatusOr<Fd> fd = ConnectPackets(identity.path);
  bool connected = fd.ok();
  if (connected) {
    v1::RankMessage message;
    v1::RankHello* hello = message.mutable_hello();
    hello->set_job(identity.key.job);
    hello->set_generation(identity.key.generation);
    hello->set_rank(identity.key.rank);
    hello->set_nonce(identity.nonce);
    hello->set_instance(identity.instance);
    hello->set_protocol(kLinkProtocol);
    hello->set_version(kVersion);
    connected = SendPacket(fd->get(), message.SerializeAsString()) ==
                PacketResult::kDone;
  }
  MutexLock lock(&mu_);
  if (!fd.ok()) connect_error_ = Message(fd.status());
  if (connected) fd_ = *std::move(fd);
  changed_.NotifyAll();
  return connected;
}

void RankLink::Impl::Disconnect() {
  fd_.Reset();
  connected_ = false;
  connect_error_ = "the worker daemon closed the connection";
  std::erase_if(out_, [](const Packet& packet) { return packet.repeated; });
  changed_.NotifyAll();
}

bool RankLink::Impl::Send() {
  MutexLock lock(&mu_);
  if (!connected_) return true;
  while (!out_.empty()) {
    switch (SendPacket(fd_.get(), out_.front().bytes)) {
      case PacketResult::kDone:
        out_.pop_front();
        break;
      case PacketResult::kWouldBlock:
        return true;
      case PacketResult::kClosed:
      case PacketResult::kOversized:  // Not possible: looked at when queued.
        return false;
    }
  }
  changed_.NotifyAll();
  return true;
}

bool RankLink::Impl::Receive() {
  std::string packet;
  while (true) {
    const PacketResult result = ReceivePacket(fd_.get(), &packet);
    if (result == PacketResult::kWouldBlock) return true;
    if (result != PacketResult::kDone) return false;
    v1::DaemonMessage message;
    if (!message.ParseFromString(packet)) return false;
    OnMessage(message);
  }
}

void RankLink::Impl::OnMessage(const v1::DaemonMessage& message) {
  using Case = v1::DaemonMessage::MessageCase;
  std::string why;
  bool tell = false;
  bool recover = false;
  {
    MutexLock lock(&mu_);
    bool over = false;
    switch (message.message_case()) {
      case Case::kWelcome:
        recover = OnWelcome(message.welcome());
        break;
      case Case::kRefusal:
        why = "the worker daemon refuses this rank: " +
              message.refusal().message();
        over = Over(message.refusal().taken() ? AlreadyExists("{}", why)
                                              : PermissionDenied("{}", why)) &&
               welcome_.has_value();
        break;
      case Case::kAbort:
        why = message.abort().message();
        if (why.empty()) why = "the generation was ended";
        over = Over(Aborted("{}", why));
        break;
      case Case::kValue:
        tell = state_.OnValue(message.value().key(), message.value().value());
        break;
      case Case::kGo:
        // A daemon repeats it to the ranks of a recovery, which need none.
        if (welcome_ && welcome_->recovery() == 0) state_.OnGo();
        break;
      case Case::kDirective:
      case Case::MESSAGE_NOT_SET:
        break;
    }
    changed_.NotifyAll();
    if (!over) why.clear();
  }
  if (!why.empty() && callbacks_.abort) callbacks_.abort(why);
  if (recover && callbacks_.recover) {
    callbacks_.recover(message.welcome());
  }
  if (tell && callbacks_.value) {
    callbacks_.value(message.value().key(), message.value().value());
  }
  if (message.has_directive() && callbacks_.directive) {
    callbacks_.directive(message.directive());
  }
}

bool RankLink::Impl::OnWelcome(const v1::RankWelcome& welcome) {
  const bool recover =
      welcome_.has_value() && welcome.recovery() > welcome_->recovery();
  if (recover) {
    state_.BeginAnew();
    std::erase_if(out_, [](const Packet& packet) { return packet.repeated; });
  }
  if (!welcome_) taken_recovery_ = welcome.recovery();
  if (!welcome_ || recover) welcome_ = welcome;
  connected_ = true;
  QueueLatest();
  return recover;
}

bool RankLink::Impl::Over(Status why) {
  if (!over_.ok()) return false;
  over_ = std::move(why);
  return true;
}

void RankLink::Impl::QueueMessage(const v1::RankMessage& message,
                                  bool repeated) {
  // What is repeated is made anew at the next Welcome.
  if (repeated && !connected_) return;
  if (out_.size() >= kMaxQueuedReports) {
    // A daemon that has not read for long: the latest is enough.
    std::erase_if(out_, [](const Packet& packet) { return packet.repeated; });
    if (repeated) return QueueLatest();
    if (out_.size() >= kMaxQueuedReports) return;
  }
  out_.push_back({message.SerializeAsString(), repeated});
}

// In front of the events that wait. However many they are: what is remembered
// was wanted.
void RankLink::Impl::QueueLatest() {
  std::deque<Packet> events;
  events.swap(out_);
  for (const v1::RankMessage& message : state_.Repeated()) {
    out_.push_back({message.SerializeAsString(), true});
  }
  for (Packet& packet : events) out_.push_back(std::move(packet));
}

}  // namespace lockstep::worker::rank_link
