// Where the work of admitted calls is done: pools of threads by the caller's
// role, so that no role can keep another waiting, and calls that are answered
// once apart from streams.
//
// A thread is held while there is something to do, never while a call waits
// for news or for its reader: handlers are gRPC's callback API, whose own two
// to sixteen threads must not block.
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

// Of who is not told apart (--insecure-loopback): kUsers.
CallRole CallRoleOf(const Identity& caller);

struct CallPoolOptions {
  // By CallRole. Many commands wait for one commit to disk together, so there
  // are more threads than cores.
  std::array<size_t, kCallRoles> unary_threads = {16, 64, 32};
  // What streams do between two waits is short. Daemons' streams commit what
  // they report.
  std::array<size_t, kCallRoles> stream_threads = {4, 8, 16};
  // Unary calls of one role that wait for a thread; more are refused. One
  // caller has at most CallerLimits::open_calls of them.
  size_t most_waiting = 4096;
};

class CallPools {
 public:
  explicit CallPools(const CallPoolOptions& options = {});

  WorkPool* unary(CallRole role) { return pools_[Index(role)].unary.get(); }
  WorkPool* streams(CallRole role) { return pools_[Index(role)].streams.get(); }
  Timers* timers() { return &timers_; }

  // ResourceExhausted (reason BUSY): too many unary calls of the caller's role
  // wait already.
  Status CheckRoom(const Identity& caller);

 private:
  struct OfRole {
    std::unique_ptr<WorkPool> unary;
    std::unique_ptr<WorkPool> streams;
  };
  static size_t Index(CallRole role) { return static_cast<size_t>(role); }

  const CallPoolOptions options_;
  // The timers end first: they post to the pools.
  std::array<OfRole, kCallRoles> pools_;
  Timers timers_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_CALL_POOLS_H_
