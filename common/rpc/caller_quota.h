// Each caller's use of its CallerLimits.
//
// Per name in the certificate, it holds a token bucket for calls and counts
// open unary calls and streams, so extra connections gain nothing. Callers
// without a certificate (--insecure-loopback) share no quota and have no limit.
// Messages of a stream are not counted.
//
// Thread-safe. Each call is a look-up under a lock.
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

  // Takes one of the caller's tokens. ResourceExhausted (reason TOO_MANY_CALLS,
  // TOO_MANY_OPEN_CALLS or TOO_MANY_OPEN_STREAMS) if none is left or too many
  // calls of the kind are open. `*first` is set for the caller's first
  // rejection within a second, which deserves a log line.
  Status Admit(const pki::Identity& caller, CallKind kind, MonoTime now,
               bool* first);

  // An admitted call has begun, and has ended.
  void Begin(const pki::Identity& caller, CallKind kind);
  void End(const pki::Identity& caller, CallKind kind);

  // The number of tracked callers.
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

  Use* Find(const pki::Identity& caller, MonoTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fill(Use* use, MonoTime now) const;
  int MostOpen(CallKind kind) const;
  // Removes callers with all tokens and no open call.
  void Prune(MonoTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const CallerLimits limits_;
  mutable Mutex mu_;
  std::map<std::string, Use> uses_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_CALLER_QUOTA_H_
