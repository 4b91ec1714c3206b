#include "worker/rank_link/client.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "common/base/fd.h"
#include "common/base/mutex.h"
#include "worker/rank_link/packet.h"
#include "worker/rank_link/text.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr Duration kFirstBackoff = milliseconds(10);
constexpr Duration kLastBackoff = milliseconds(1000);
constexpr Duration kClosingTime = milliseconds(200);
constexpr size_t kMaxQueued = 4096;

MonoTime Now() { return SystemClock().Now().mono; }

template <typename Number>
Status ReadNumber(const char* variable, Number* number) {
  const char* text = std::getenv(variable);
  if (text == nullptr) {
    return InvalidArgument("{} is set but {} is not: who started this rank?",
                           kLinkVariable, variable);
  }
  const char* end = text + std::string_view(text).size();
  const auto [stop, error] = std::from_chars(text, end, *number);
  if (error != std::errc() || stop != end || *number < 0) {
    return InvalidArgument("{}='{}' is not a number", variable, text);
  }
  return OkStatus();
}

StatusOr<std::string> ReadNonce(int number) {
  const Fd fd(number);
  std::string nonce(kMaxNonce + 1, '\0');
  ssize_t n = ::pread(number, nonce.data(), nonce.size(), 0);
  if (n < 0 && errno == ESPIPE) {
    n = ::read(number, nonce.data(), nonce.size());
  }
  if (n < 0) {
    return ErrnoStatus(errno, fmt::format("reading the nonce from fd {} ({})",
                                          number, kNonceFdVariable));
  }
  if (n == 0 || n > static_cast<ssize_t>(kMaxNonce)) {
    return InvalidArgument("the nonce in fd {} is not 1 to {} bytes long",
                           number, kMaxNonce);
  }
  nonce.resize(static_cast<size_t>(n));
  return nonce;
}

}  // namespace

StatusOr<std::optional<RankIdentity>> RankIdentityFromEnvironment() {
  const char* path = std::getenv(kLinkVariable);
  if (path == nullptr || *path == '\0') return std::optional<RankIdentity>();
  RankIdentity identity;
  identity.path = path;
  const char* job = std::getenv(kJobVariable);
  if (job == nullptr || *job == '\0') {
    return InvalidArgument("{} is set but {} is not: who started this rank?",
                           kLinkVariable, kJobVariable);
  }
  identity.key.job = job;
  LOCKSTEP_RETURN_IF_ERROR(
      ReadNumber(kGenerationVariable, &identity.key.generation));
  LOCKSTEP_RETURN_IF_ERROR(ReadNumber(kRankVariable, &identity.key.rank));
  int nonce_fd = -1;
  LOCKSTEP_RETURN_IF_ERROR(ReadNumber(kNonceFdVariable, &nonce_fd));
  LOCKSTEP_ASSIGN_OR_RETURN(identity.nonce, ReadNonce(nonce_fd));
  return std::optional<RankIdentity>(std::move(identity));
}

class RankLink::Impl {
 public:
  Impl(RankIdentity identity, RankLinkCallbacks callbacks, Fd wake)
      : identity_(std::move(identity)),
        callbacks_(std::move(callbacks)),
        wake_(std::move(wake)) {}
  ~Impl();

  void Start();
  Status WaitForWelcome(MonoTime deadline);

  Status Put(const std::string& key, std::string_view value);
  StatusOr<std::string> Get(const std::string& key, MonoTime deadline);
  void SendJoined();
  Status WaitForGo(MonoTime deadline);
  void Report(const v1::RankReport& report);
  Status Flush(MonoTime deadline);
  Status Freeze(MonoTime deadline);
  void Thaw();
  bool connected();

  const RankIdentity& identity() const { return identity_; }
  // Constant once WaitForWelcome returned OK.
  const v1::RankWelcome& welcome() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return *welcome_;
  }

 private:
  struct Packet {
    std::string bytes;
    // Made again after a reconnect.
    bool repeated = false;
  };

  void Loop();
  bool TryConnect();
  void Disconnect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False: the connection is at its end.
  bool Receive();
  bool Send();
  void OnMessage(const v1::DaemonMessage& message);
  void OnWelcome(const v1::RankWelcome& welcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // True the first time.
  bool Over(Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void QueueMessage(const v1::RankMessage& message, bool repeated)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void QueueLatest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Remember(const v1::RankReport& report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Why no wait can succeed any more; OK while one may.
  Status Hopeless() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Wake();
  void Sleep(int fd, short events, Duration timeout);

  const RankIdentity identity_;
  const RankLinkCallbacks callbacks_;
  const Fd wake_;  // eventfd: the thread has something to do.
  // Of the thread; shown to others by connected_.
  Fd fd_;

  Mutex mu_;
  CondVar changed_;
  bool connecting_ ABSL_GUARDED_BY(mu_) = false;
  bool connected_ ABSL_GUARDED_BY(mu_) = false;  // Welcomed on this socket.
  bool frozen_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  MonoTime stop_at_ ABSL_GUARDED_BY(mu_);
  std::optional<v1::RankWelcome> welcome_ ABSL_GUARDED_BY(mu_);
  Status over_ ABSL_GUARDED_BY(mu_);
  bool go_ ABSL_GUARDED_BY(mu_) = false;
  std::string connect_error_ ABSL_GUARDED_BY(mu_);

  std::deque<Packet> out_ ABSL_GUARDED_BY(mu_);
  // What is repeated after a reconnect.
  std::map<std::string, std::string> puts_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> asked_ ABSL_GUARDED_BY(mu_);
  bool joined_ ABSL_GUARDED_BY(mu_) = false;
  v1::RankReport latest_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> artifacts_ ABSL_GUARDED_BY(mu_);

  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

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
    stopping_ = true;
    stop_at_ = Now() + kClosingTime;
  }
  Wake();
  if (thread_.joinable()) thread_.join();
}

void RankLink::Impl::Wake() {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
}

// Until `fd` (-1: none) is ready, Wake() or `timeout`.
void RankLink::Impl::Sleep(int fd, short events, Duration timeout) {
  pollfd waited[2] = {{wake_.get(), POLLIN, 0}, {fd, events, 0}};
  const auto ms = std::chrono::ceil<milliseconds>(timeout);
  ::poll(waited, fd < 0 ? 1 : 2, static_cast<int>(ms.count()));
  uint64_t count;
  (void)!::read(wake_.get(), &count, sizeof(count));
}

void RankLink::Impl::Loop() {
  Duration backoff = kFirstBackoff;
  while (true) {
    bool wants_write = false;
    {
      MutexLock lock(&mu_);
      wants_write = connected_ && !out_.empty();
      if (stopping_ && (!wants_write || Now() >= stop_at_)) break;
      // A refused rank has no one to talk to.
      if (over_.code() == StatusCode::kPermissionDenied && !fd_) break;
    }
    if (!fd_) {
      if (TryConnect()) continue;
      Sleep(-1, 0, backoff);
      backoff = std::min(2 * backoff, kLastBackoff);
      continue;
    }
    Sleep(fd_.get(), static_cast<short>(POLLIN | (wants_write ? POLLOUT : 0)),
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
  fd_.Reset();
  MutexLock lock(&mu_);
  connected_ = false;
  changed_.NotifyAll();
}

bool RankLink::Impl::TryConnect() {
  {
    MutexLock lock(&mu_);
    if (frozen_) return false;
    connecting_ = true;
  }
  StatusOr<Fd> fd = ConnectPackets(identity_.path);
  bool connected = fd.ok();
  if (connected) {
    v1::RankMessage message;
    v1::RankHello* hello = message.mutable_hello();
    hello->set_job(identity_.key.job);
    hello->set_generation(identity_.key.generation);
    hello->set_rank(identity_.key.rank);
    hello->set_nonce(identity_.nonce);
    connected = SendPacket(fd->get(), message.SerializeAsString()) ==
                PacketResult::kDone;
  }
  MutexLock lock(&mu_);
  connecting_ = false;
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
  {
    MutexLock lock(&mu_);
    bool over = false;
    switch (message.message_case()) {
      case Case::kWelcome:
        OnWelcome(message.welcome());
        break;
      case Case::kRefusal:
        why = "the worker daemon refuses this rank: " +
              message.refusal().message();
        over = Over(PermissionDenied("{}", why)) && welcome_.has_value();
        break;
      case Case::kAbort:
        why = message.abort().message();
        if (why.empty()) why = "the generation was ended";
        over = Over(Aborted("{}", why));
        break;
      case Case::kValue:
        if (asked_.erase(message.value().key()) > 0) {
          values_[message.value().key()] = message.value().value();
        }
        break;
      case Case::kGo:
        go_ = true;
        puts_.clear();
        break;
      case Case::kDirective:
      case Case::MESSAGE_NOT_SET:
        break;
    }
    changed_.NotifyAll();
    if (!over) why.clear();
  }
  if (!why.empty() && callbacks_.abort) callbacks_.abort(why);
  if (message.has_directive() && callbacks_.directive) {
    callbacks_.directive(message.directive());
  }
}

void RankLink::Impl::OnWelcome(const v1::RankWelcome& welcome) {
  if (!welcome_) welcome_ = welcome;
  connected_ = true;
  QueueLatest();
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
  if (out_.size() >= kMaxQueued) {
    // A daemon that has not read for long: the latest is enough.
    std::erase_if(out_, [](const Packet& packet) { return packet.repeated; });
    if (repeated) return QueueLatest();
    if (out_.size() >= kMaxQueued) return;
  }
  out_.push_back({message.SerializeAsString(), repeated});
}

// In front of the events that wait.
void RankLink::Impl::QueueLatest() {
  std::deque<Packet> events;
  events.swap(out_);
  v1::RankMessage message;
  for (const auto& [key, value] : puts_) {
    message.mutable_put()->set_key(key);
    message.mutable_put()->set_value(value);
    QueueMessage(message, true);
  }
  for (const std::string& key : asked_) {
    message.mutable_get()->set_key(key);
    QueueMessage(message, true);
  }
  if (joined_) {
    message.mutable_joined();
    QueueMessage(message, true);
  }
  for (const auto& [name, path] : artifacts_) {
    message.mutable_report()->Clear();
    message.mutable_report()->set_artifact_name(name);
    message.mutable_report()->set_artifact_path(path);
    QueueMessage(message, true);
  }
  if (latest_.ByteSizeLong() > 0) {
    *message.mutable_report() = latest_;
    QueueMessage(message, true);
  }
  for (Packet& packet : events) out_.push_back(std::move(packet));
}

void RankLink::Impl::Remember(const v1::RankReport& report) {
  if (!report.artifact_name().empty()) {
    artifacts_[report.artifact_name()] = report.artifact_path();
  }
  if (!report.checkpoint_path().empty()) {
    latest_.set_checkpoint_step(report.checkpoint_step());
    latest_.set_checkpoint_path(report.checkpoint_path());
    latest_.set_checkpoint_bytes(report.checkpoint_bytes());
  }
  if (report.has_resumed_step()) {
    latest_.set_has_resumed_step(true);
    latest_.set_resumed_step(report.resumed_step());
  }
  latest_.set_directive_done(
      std::max(latest_.directive_done(), report.directive_done()));
  if (!report.failure().empty() && latest_.failure().empty()) {
    latest_.set_failure(report.failure());
    latest_.set_victim(report.victim());
    latest_.set_failure_reason(report.failure_reason());
  }
}

Status RankLink::Impl::Hopeless() {
  if (!over_.ok()) return over_;
  if (frozen_ && !connected_) {
    return Unavailable(
        "the link to the worker daemon broke while the ranks were forming");
  }
  return OkStatus();
}

Status RankLink::Impl::WaitForWelcome(MonoTime deadline) {
  MutexLock lock(&mu_);
  while (!welcome_) {
    if (!over_.ok()) return over_;
    if (!changed_.WaitUntil(&mu_, deadline) && Now() >= deadline) {
      return DeadlineExceeded(
          "no welcome from the worker daemon at {}{}{}", identity_.path,
          connect_error_.empty() ? "" : ": ", connect_error_);
    }
  }
  return OkStatus();
}

Status RankLink::Impl::Put(const std::string& key, std::string_view value) {
  if (key.empty() || key.size() > kMaxRendezvousKey ||
      value.size() > kMaxRendezvousValue) {
    return InvalidArgument(
        "rendezvous key '{}' of {} bytes with a value of {}: at most {} and {}",
        key.substr(0, 64), key.size(), value.size(), kMaxRendezvousKey,
        kMaxRendezvousValue);
  }
  {
    MutexLock lock(&mu_);
    LOCKSTEP_RETURN_IF_ERROR(Hopeless());
    auto [it, inserted] = puts_.emplace(key, value);
    if (!inserted && it->second != value) {
      return AlreadyExists("rendezvous key '{}' has another value", key);
    }
    v1::RankMessage message;
    message.mutable_put()->set_key(key);
    message.mutable_put()->set_value(it->second);
    QueueMessage(message, true);
  }
  Wake();
  return OkStatus();
}

StatusOr<std::string> RankLink::Impl::Get(const std::string& key,
                                          MonoTime deadline) {
  MutexLock lock(&mu_);
  if (!values_.contains(key)) {
    v1::RankMessage message;
    message.mutable_get()->set_key(key);
    asked_.insert(key);
    QueueMessage(message, true);
    Wake();
  }
  while (true) {
    if (auto it = values_.find(key); it != values_.end()) return it->second;
    Status hopeless = Hopeless();
    bool late = false;
    if (hopeless.ok()) {
      late = !changed_.WaitUntil(&mu_, deadline) && Now() >= deadline;
    }
    if (hopeless.ok() && !late) continue;
    asked_.erase(key);
    if (!hopeless.ok()) return hopeless;
    return DeadlineExceeded("no rank has put '{}' in time", key);
  }
}

void RankLink::Impl::SendJoined() {
  {
    MutexLock lock(&mu_);
    joined_ = true;
    v1::RankMessage message;
    message.mutable_joined();
    QueueMessage(message, true);
  }
  Wake();
}

Status RankLink::Impl::WaitForGo(MonoTime deadline) {
  MutexLock lock(&mu_);
  while (true) {
    LOCKSTEP_RETURN_IF_ERROR(Hopeless());
    if (go_) return OkStatus();
    if (!changed_.WaitUntil(&mu_, deadline) && Now() >= deadline) {
      return DeadlineExceeded(
          "not all ranks of job {} g{} have joined in time: no Go",
          identity_.key.job, identity_.key.generation);
    }
  }
}

void RankLink::Impl::Report(const v1::RankReport& given) {
  v1::RankMessage message;
  v1::RankReport& report = *message.mutable_report();
  report = given;
  for (std::string* text :
       {report.mutable_checkpoint_path(), report.mutable_artifact_name(),
        report.mutable_artifact_path(), report.mutable_event(),
        report.mutable_failure()}) {
    *text = CleanText(*text);
  }
  {
    MutexLock lock(&mu_);
    Remember(report);
    // Events alone are sent once; the rest is in latest_ and artifacts_.
    QueueMessage(message, report.event().empty());
  }
  Wake();
}

Status RankLink::Impl::Flush(MonoTime deadline) {
  MutexLock lock(&mu_);
  while (!connected_ || !out_.empty()) {
    if (over_.code() == StatusCode::kPermissionDenied) return over_;
    if (!changed_.WaitUntil(&mu_, deadline) && Now() >= deadline) {
      return DeadlineExceeded("the worker daemon does not take {} messages",
                              out_.size());
    }
  }
  return OkStatus();
}

Status RankLink::Impl::Freeze(MonoTime deadline) {
  MutexLock lock(&mu_);
  while (!connected_) {
    if (!over_.ok()) return over_;
    if (!changed_.WaitUntil(&mu_, deadline) && Now() >= deadline) {
      return Unavailable("no link to the worker daemon at {}: {}",
                         identity_.path, connect_error_);
    }
  }
  frozen_ = true;
  return OkStatus();
}

void RankLink::Impl::Thaw() {
  {
    MutexLock lock(&mu_);
    frozen_ = false;
  }
  Wake();
}

bool RankLink::Impl::connected() {
  MutexLock lock(&mu_);
  return connected_;
}

StatusOr<std::unique_ptr<RankLink>> RankLink::Connect(
    RankIdentity identity, RankLinkCallbacks callbacks, MonoTime deadline) {
  Fd wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake) return ErrnoStatus(errno, "eventfd for the rank link");
  if (identity.path.size() > kMaxSocketPath) {
    return InvalidArgument("{} has {} bytes: a Unix socket's path has {}",
                           kLinkVariable, identity.path.size(), kMaxSocketPath);
  }
  auto impl = std::make_unique<Impl>(std::move(identity), std::move(callbacks),
                                     std::move(wake));
  impl->Start();
  LOCKSTEP_RETURN_IF_ERROR(impl->WaitForWelcome(deadline));
  return std::unique_ptr<RankLink>(new RankLink(std::move(impl)));
}

RankLink::RankLink(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RankLink::~RankLink() = default;

const RankKey& RankLink::key() const { return impl_->identity().key; }
const v1::RankWelcome& RankLink::welcome() const { return impl_->welcome(); }
Status RankLink::Put(const std::string& key, std::string_view value) {
  return impl_->Put(key, value);
}
StatusOr<std::string> RankLink::Get(const std::string& key, MonoTime deadline) {
  return impl_->Get(key, deadline);
}
void RankLink::SendJoined() { impl_->SendJoined(); }
Status RankLink::WaitForGo(MonoTime deadline) {
  return impl_->WaitForGo(deadline);
}
void RankLink::Report(const v1::RankReport& report) { impl_->Report(report); }
Status RankLink::Flush(MonoTime deadline) { return impl_->Flush(deadline); }
Status RankLink::Freeze(MonoTime deadline) { return impl_->Freeze(deadline); }
void RankLink::Thaw() { impl_->Thaw(); }
bool RankLink::connected() const { return impl_->connected(); }

}  // namespace lockstep
