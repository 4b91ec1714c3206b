#include "server/stream/turns.h"

#include <algorithm>

namespace lockstep {

Turns::Turn::Turn(Turns* turns, const Identity& caller, StreamPeer* peer)
    : turns_(turns),
      peer_(peer),
      caller_(FormatIdentity(caller)),
      role_(CallRoleOf(caller)),
      deadline_(MonotonicNow() + turns->limits_.patience) {
  MutexLock lock(&turns_->mu_);
  if (!turns_->IsFull(*this)) {
    turns_->Give(this);
    return;
  }
  if (!turns_->MayWait(*this)) {
    state_ = State::kRefused;
  } else {
    turns_->waiting_.push_back(this);
  }
}

Turns::Turn::~Turn() {
  MutexLock lock(&turns_->mu_);
  turns_->waiting_.remove(this);
  if (turns_->open_.erase(this) > 0) turns_->GiveNext();
}

std::optional<Status> Turns::Turn::Take() {
  MutexLock lock(&turns_->mu_);
  if (state_ == State::kHas) return OkStatus();
  if (state_ == State::kWaits) {
    if (MonotonicNow() < deadline_) return std::nullopt;
    turns_->waiting_.remove(this);
    state_ = State::kRefused;
  }
  return turns_->Busy(role_);
}

void Turns::Turn::Progress() {
  MutexLock lock(&turns_->mu_);
  last_progress_ = MonotonicNow();
}

int Turns::OpenOf(CallRole role) const {
  return static_cast<int>(
      std::count_if(open_.begin(), open_.end(),
                    [&](const Turn* turn) { return turn->role_ == role; }));
}

bool Turns::IsFull(const Turn& turn) const {
  const auto of_caller = std::count_if(
      open_.begin(), open_.end(),
      [&](const Turn* other) { return other->caller_ == turn.caller_; });
  return OpenOf(turn.role_) >= limits_.at_once ||
         of_caller >= limits_.of_caller;
}

bool Turns::MayWait(const Turn& turn) const {
  int of_role = 0, of_caller = 0;
  for (const Turn* other : waiting_) {
    if (other->role_ == turn.role_) ++of_role;
    if (other->caller_ == turn.caller_) ++of_caller;
  }
  return of_role < limits_.waiting &&
         of_caller < limits_.of_caller * limits_.waiting_per_turn;
}

Status Turns::Busy(CallRole role) const {
  return WithReason(Unavailable("{} {} are already in progress: retry later",
                                OpenOf(role), what_),
                    "BUSY");
}

void Turns::Give(Turn* turn) {
  turn->turns_->mu_.AssertHeld();
  turn->state_ = Turn::State::kHas;
  turn->last_progress_ = MonotonicNow();
  open_.insert(turn);
}

void Turns::GiveNext() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    Turn* const turn = *it;
    if (IsFull(*turn)) {
      ++it;
      continue;
    }
    it = waiting_.erase(it);
    Give(turn);
    turn->peer_->Wake();
  }
}

void Turns::CancelIdle(MonoTime time) {
  MutexLock lock(&mu_);
  for (Turn* turn : open_) {
    turn->turns_->mu_.AssertHeld();
    if (turn->last_progress_ <= time) turn->peer_->Cancel();
  }
}

}  // namespace lockstep
