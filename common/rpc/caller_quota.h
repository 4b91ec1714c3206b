// What each caller has used of its CallerLimits.
//
// A token bucket for calls, and counts of unary calls and of streams that have
// not ended, by the name in the certificate: opening more connections gains
// nothing. Callers without a certificate (--insecure-loopback) are not told
// apart and not limited. The messages of a stream are not counted.
//
// Thread-safe; a look-up under a lock.
#ifndef LOCKSTEP_COMMON_RPC_CALLER_QUOTA_H_
#define LOCKSTEP_COMMON_RPC_CALLER_QUOTA_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/pki/identity.h"
#include "common/rpc/limits.h"

namespace lockstep {

enum class CallKind { kUnary, kStream };

class CallerQuota {
 public:
  explicit CallerQuota(CallerLimits limits) : limits_(limits) {}

  // Takes one call off the caller's tokens. ResourceExhausted (reason
  // TOO_MANY_CALLS, TOO_MANY_OPEN_CALLS or TOO_MANY_OPEN_STREAMS) where there
  // is none left, or too many of its kind are open. `*first` says whether this
  // is its first refusal for a second: what is worth a line in the log.
  Status Admit(const Identity& caller, CallKind kind, MonoTime now,
               bool* first);

  // A call that was admitted has begun, and has ended.
  void Begin(const Identity& caller, CallKind kind);
  void End(const Identity& caller, CallKind kind);

  // Callers that are remembered.
  size_t size() const;

 private:
  struct Use {
    double tokens = 0;
    MonoTime filled;
    // By CallKind.
    std::array<int, 2> open{};
    bool refused = false;
    MonoTime last_refusal;
  };

  Use* Find(const Identity& caller, MonoTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fill(Use* use, MonoTime now) const;
  int MostOpen(CallKind kind) const;
  // Forgets who has all tokens and no call.
  void Prune(MonoTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const CallerLimits limits_;
  mutable Mutex mu_;
  std::map<std::string, Use> uses_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_CALLER_QUOTA_H_
