#include "server/stream/admission_limiter.h"

#include <algorithm>

namespace lockstep::server {

AdmissionLimiter::Ticket::Ticket(AdmissionLimiter* limiter,
                                 const pki::Identity& caller, StreamPeer* peer)
    : limiter_(limiter),
      peer_(peer),
      caller_(FormatIdentity(caller)),
      role_(CallRoleOf(caller)),
      deadline_(MonotonicNow() + limiter->limits_.patience) {
  MutexLock lock(&limiter_->mu_);
  if (!limiter_->IsFull(*this)) {
    limiter_->Admit(this);
    return;
  }
  if (!limiter_->MayWait(*this)) {
    state_ = State::kRejected;
  } else {
    limiter_->waiting_.push_back(this);
  }
}

AdmissionLimiter::Ticket::~Ticket() {
  MutexLock lock(&limiter_->mu_);
  limiter_->waiting_.remove(this);
  if (limiter_->admitted_.erase(this) > 0) limiter_->AdmitNext();
}

std::optional<Status> AdmissionLimiter::Ticket::Poll() {
  MutexLock lock(&limiter_->mu_);
  if (state_ == State::kAdmitted) return OkStatus();
  if (state_ == State::kWaiting) {
    if (MonotonicNow() < deadline_) return std::nullopt;
    limiter_->waiting_.remove(this);
    state_ = State::kRejected;
  }
  return limiter_->Busy(role_);
}

void AdmissionLimiter::Ticket::Progress() {
  MutexLock lock(&limiter_->mu_);
  last_progress_ = MonotonicNow();
}

int AdmissionLimiter::AdmittedOf(CallRole role) const {
  return static_cast<int>(std::count_if(
      admitted_.begin(), admitted_.end(),
      [&](const Ticket* ticket) { return ticket->role_ == role; }));
}

bool AdmissionLimiter::IsFull(const Ticket& ticket) const {
  const auto per_caller = std::count_if(
      admitted_.begin(), admitted_.end(),
      [&](const Ticket* other) { return other->caller_ == ticket.caller_; });
  return AdmittedOf(ticket.role_) >= limits_.concurrent ||
         per_caller >= limits_.per_caller;
}

bool AdmissionLimiter::MayWait(const Ticket& ticket) const {
  int of_role = 0, per_caller = 0;
  for (const Ticket* other : waiting_) {
    if (other->role_ == ticket.role_) ++of_role;
    if (other->caller_ == ticket.caller_) ++per_caller;
  }
  return of_role < limits_.waiting &&
         per_caller < limits_.per_caller * limits_.waiting_per_slot;
}

Status AdmissionLimiter::Busy(CallRole role) const {
  return WithReason(Unavailable("{} already in progress: {}; retry later",
                                what_, AdmittedOf(role)),
                    "BUSY");
}

void AdmissionLimiter::Admit(Ticket* ticket) {
  ticket->limiter_->mu_.AssertHeld();
  ticket->state_ = Ticket::State::kAdmitted;
  ticket->last_progress_ = MonotonicNow();
  admitted_.insert(ticket);
}

void AdmissionLimiter::AdmitNext() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    Ticket* const ticket = *it;
    if (IsFull(*ticket)) {
      ++it;
      continue;
    }
    it = waiting_.erase(it);
    Admit(ticket);
    ticket->peer_->Wake();
  }
}

void AdmissionLimiter::CancelIdle(MonoTime time) {
  MutexLock lock(&mu_);
  for (Ticket* ticket : admitted_) {
    ticket->limiter_->mu_.AssertHeld();
    if (ticket->last_progress_ <= time) ticket->peer_->Cancel();
  }
}

}  // namespace lockstep::server
