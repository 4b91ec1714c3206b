// Thread pools for the work of admitted calls. Each role has its own pools, so
// that no role can delay another, with unary calls apart from streams.
//
// A call holds a thread only while there is work, never while it waits for data
// or its reader: handlers use gRPC's callback API, whose two to sixteen threads
// must not block.
//
// Thread-safe.
#ifndef LOCKSTEP_COMMON_RPC_CALL_POOLS_H_
#define LOCKSTEP_COMMON_RPC_CALL_POOLS_H_

#include <array>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/pki/identity.h"
#include "common/rpc/timers.h"
#include "common/rpc/work_pool.h"

namespace lockstep {

enum class CallRole {
  kAdmins,
  kUsers,    // Submitters and viewers.
  kWorkers,  // Daemons, and other coordinators.
};
inline constexpr size_t kCallRoles = 3;

// Returns kUsers for an unauthenticated caller (--insecure-loopback).
CallRole CallRoleOf(const pki::Identity& caller);

struct CallPoolOptions {
  // By CallRole. Many commands wait together for one commit to disk, so there
  // are more threads than cores.

  std::array<size_t, kCallRoles> unary_threads = {16, 64, 32};
  // Streams work only briefly between two waits. Daemons' streams commit their
  // reports.
  std::array<size_t, kCallRoles> stream_threads = {4, 8, 16};
  // Limit of unary calls of one role that wait for a thread. More are rejected.
  // One caller has at most CallerLimits::open_calls of them.
  size_t most_waiting = 4096;
};

class CallPools {
 public:
  explicit CallPools(const CallPoolOptions& options = {});

  WorkPool* unary(CallRole role) { return pools_[Index(role)].unary.get(); }
  WorkPool* streams(CallRole role) { return pools_[Index(role)].streams.get(); }
  Timers* timers() { return &timers_; }

  // ResourceExhausted (reason BUSY) if too many unary calls of the caller's
  // role are waiting.
  Status CheckRoom(const pki::Identity& caller);

 private:
  struct OfRole {
    std::unique_ptr<WorkPool> unary;
    std::unique_ptr<WorkPool> streams;
  };
  static size_t Index(CallRole role) { return static_cast<size_t>(role); }

  const CallPoolOptions options_;
  // Destroyed first, because timers post to the pools.
  std::array<OfRole, kCallRoles> pools_;
  Timers timers_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_CALL_POOLS_H_
