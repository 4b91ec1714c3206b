#include "worker/rank_link/client.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

#include "worker/rank_link/client_impl.h"
#include "worker/rank_link/packet.h"
#include "worker/rank_link/text.h"

namespace lockstep::worker::rank_link {

Status RankLink::Impl::WaitForWelcome(MonoTime deadline) {
  MutexLock lock(&mu_);
  while (!welcome_) {
    if (!over_.ok()) return over_;
    if (!changed_.WaitUntil(&mu_, deadline) && MonotonicNow() >= deadline) {
      return DeadlineExceeded("no welcome from the worker daemon at {}{}{}",
                              identity.path, connect_error_.empty() ? "" : ": ",
                              connect_error_);
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
    LOCKSTEP_RETURN_IF_ERROR(Closed());
    LOCKSTEP_RETURN_IF_ERROR(state_.Put(key, value));
    v1::RankMessage message;
    message.mutable_put()->set_key(key);
    message.mutable_put()->set_value(std::string(value));
    QueueMessage(message, true);
  }
  Wake();
  return OkStatus();
}

StatusOr<std::string> RankLink::Impl::Get(const std::string& key,
                                          MonoTime deadline) {
  MutexLock lock(&mu_);
  LOCKSTEP_RETURN_IF_ERROR(Closed());
  if (!state_.Find(key)) {
    v1::RankMessage message;
    message.mutable_get()->set_key(key);
    state_.Ask(key);
    QueueMessage(message, true);
    Wake();
  }
  while (true) {
    if (auto value = state_.Find(key)) return *std::move(value);
    const Status closed = Closed();
    if (closed.ok() &&
        (changed_.WaitUntil(&mu_, deadline) || MonotonicNow() < deadline)) {
      continue;
    }
    state_.StopAsking(key);
    LOCKSTEP_RETURN_IF_ERROR(closed);
    return DeadlineExceeded("no rank put '{}' before the deadline", key);
  }
}

void RankLink::Impl::Ask(const std::string& key) {
  {
    MutexLock lock(&mu_);
    v1::RankMessage message;
    message.mutable_get()->set_key(key);
    state_.Ask(key, /*tell=*/true);
    QueueMessage(message, true);
  }
  Wake();
}

void RankLink::Impl::Forget(const std::string& key) {
  MutexLock lock(&mu_);
  state_.Forget(key);
}

void RankLink::Impl::SendJoined(uint32_t recovery, bool recoverable,
                                bool elastic) {
  {
    MutexLock lock(&mu_);
    if (recovery < welcome_->recovery()) return;
    v1::RankMessage message;
    message.mutable_joined()->set_recovery(recovery);
    message.mutable_joined()->set_recoverable(recoverable);
    message.mutable_joined()->set_elastic(elastic);
    state_.Join(message.joined());
    QueueMessage(message, true);
  }
  Wake();
}

StatusOr<uint32_t> RankLink::Impl::WaitForRecovery(uint32_t above,
                                                   MonoTime deadline) {
  MutexLock lock(&mu_);
  while (true) {
    LOCKSTEP_RETURN_IF_ERROR(over_);
    if (welcome_->recovery() > above) {
      taken_recovery_ = welcome_->recovery();
      return taken_recovery_;
    }
    if (!changed_.WaitUntil(&mu_, deadline) && MonotonicNow() >= deadline) {
      return DeadlineExceeded(
          "no recovery of job {} g{} after recovery {} came before the "
          "deadline",
          identity.key.job, identity.key.generation, above);
    }
  }
}

Status RankLink::Impl::Closed() const {
  LOCKSTEP_RETURN_IF_ERROR(over_);
  if (welcome_->recovery() <= taken_recovery_) return OkStatus();
  return Aborted("recovery {} replaces lost ranks", welcome_->recovery());
}

Status RankLink::Impl::WaitForGo(MonoTime deadline) {
  MutexLock lock(&mu_);
  while (true) {
    LOCKSTEP_RETURN_IF_ERROR(Closed());
    if (state_.go()) return OkStatus();
    if (!changed_.WaitUntil(&mu_, deadline) && MonotonicNow() >= deadline) {
      return DeadlineExceeded(
          "not all ranks of job {} g{} joined before the deadline",
          identity.key.job, identity.key.generation);
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
    state_.Remember(report);
    // Events alone are sent once; the rest is repeated.
    QueueMessage(message, report.event().empty());
  }
  Wake();
}

Status RankLink::Impl::Flush(MonoTime deadline) {
  MutexLock lock(&mu_);
  while (!connected_ || !out_.empty()) {
    if (IsRefusal(over_)) return over_;
    if (!changed_.WaitUntil(&mu_, deadline) && MonotonicNow() >= deadline) {
      return DeadlineExceeded("the worker daemon does not take {} messages",
                              out_.size());
    }
  }
  return OkStatus();
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

const RankKey& RankLink::key() const { return impl_->identity.key; }
v1::RankWelcome RankLink::welcome() const { return impl_->welcome(); }
Status RankLink::Put(const std::string& key, std::string_view value) {
  return impl_->Put(key, value);
}
StatusOr<std::string> RankLink::Get(const std::string& key, MonoTime deadline) {
  return impl_->Get(key, deadline);
}
void RankLink::Ask(const std::string& key) { impl_->Ask(key); }
void RankLink::Forget(const std::string& key) { impl_->Forget(key); }
void RankLink::SendJoined(uint32_t recovery, bool recoverable, bool elastic) {
  impl_->SendJoined(recovery, recoverable, elastic);
}
StatusOr<uint32_t> RankLink::WaitForRecovery(uint32_t above,
                                             MonoTime deadline) {
  return impl_->WaitForRecovery(above, deadline);
}
Status RankLink::WaitForGo(MonoTime deadline) {
  return impl_->WaitForGo(deadline);
}
void RankLink::Report(const v1::RankReport& report) { impl_->Report(report); }
Status RankLink::Flush(MonoTime deadline) { return impl_->Flush(deadline); }
bool RankLink::connected() const { return impl_->connected(); }

}  // namespace lockstep::worker::rank_link
