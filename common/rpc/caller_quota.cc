#include "common/rpc/caller_quota.h"

#include <algorithm>
#include <chrono>
#include <iterator>

namespace lockstep {
namespace {

using pki::Identity;

// More than the active users and nodes of any cluster.
constexpr size_t kPruneAbove = 4096;
constexpr Duration kSayAgain = std::chrono::seconds(1);

size_t Index(CallKind kind) { return static_cast<size_t>(kind); }

bool IsLimited(const Identity& caller) {
  return caller.kind != Identity::Kind::kInsecure;
}

}  // namespace

void CallerQuota::Fill(Use* use, MonoTime now) const {
  const double seconds = ToSeconds(now - use->filled);
  if (seconds <= 0) return;
  use->tokens =
      std::min(limits_.burst, use->tokens + seconds * limits_.calls_per_second);
  use->filled = now;
}

void CallerQuota::Prune(MonoTime now) {
  for (auto it = uses_.begin(); it != uses_.end();) {
    Fill(&it->second, now);
    const bool idle = it->second.open == std::array<int, 2>{} &&
                      it->second.tokens >= limits_.burst;
    it = idle ? uses_.erase(it) : std::next(it);
  }
}

CallerQuota::Use* CallerQuota::Find(const Identity& caller, MonoTime now) {
  const std::string name = FormatIdentity(caller);
  const auto known = uses_.find(name);
  if (known != uses_.end()) return &known->second;
  if (uses_.size() >= kPruneAbove) Prune(now);
  Use* const use = &uses_[name];
  use->tokens = limits_.burst;
  use->filled = now;
  return use;
}

int CallerQuota::MostOpen(CallKind kind) const {
  return kind == CallKind::kUnary ? limits_.open_calls : limits_.open_streams;
}

Status CallerQuota::Admit(const Identity& caller, CallKind kind, MonoTime now,
                          bool* first) {
  *first = false;
  if (!IsLimited(caller)) return OkStatus();
  MutexLock lock(&mu_);
  Use* const use = Find(caller, now);
  Fill(use, now);
  const int open = use->open[Index(kind)];
  const bool too_many_open = open >= MostOpen(kind);
  if (!too_many_open && use->tokens >= 1) {
    use->tokens -= 1;
    return OkStatus();
  }
  *first = !use->refused || now - use->last_refusal >= kSayAgain;
  if (*first) use->last_refusal = now;
  use->refused = true;
  if (too_many_open) {
    return WithReason(
        ResourceExhausted("{} has {} {} open, the limit of one "
                          "caller: end some",
                          Describe(caller), open,
                          kind == CallKind::kUnary ? "calls" : "streams"),
        kind == CallKind::kUnary ? "TOO_MANY_OPEN_CALLS"
                                 : "TOO_MANY_OPEN_STREAMS");
  }
  return WithReason(
      ResourceExhausted("{} makes more than {:g} calls per second: slow down",
                        Describe(caller), limits_.calls_per_second),
      "TOO_MANY_CALLS");
}

void CallerQuota::Begin(const Identity& caller, CallKind kind) {
  if (!IsLimited(caller)) return;
  MutexLock lock(&mu_);
  ++Find(caller, MonotonicNow())->open[Index(kind)];
}

void CallerQuota::End(const Identity& caller, CallKind kind) {
  if (!IsLimited(caller)) return;
  MutexLock lock(&mu_);
  // An entry with an open call is never pruned.
  --uses_[FormatIdentity(caller)].open[Index(kind)];
}

size_t CallerQuota::size() const {
  MutexLock lock(&mu_);
  return uses_.size();
}

}  // namespace lockstep
