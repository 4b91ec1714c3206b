#include "common/rpc/call_pools.h"

namespace lockstep {

using pki::Identity;
using pki::UserRole;

CallRole CallRoleOf(const Identity& caller) {
  switch (caller.kind) {
    case Identity::Kind::kCoordinator:
    case Identity::Kind::kWorker:
      return CallRole::kWorkers;
    case Identity::Kind::kUser:
      return caller.role == UserRole::kAdmin ? CallRole::kAdmins
                                             : CallRole::kUsers;
    case Identity::Kind::kInsecure:
      break;
  }
  return CallRole::kUsers;
}

CallPools::CallPools(const CallPoolOptions& options) : options_(options) {
  for (size_t i = 0; i < kCallRoles; ++i) {
    pools_[i].unary = std::make_unique<WorkPool>(options.unary_threads[i]);
    pools_[i].streams = std::make_unique<WorkPool>(options.stream_threads[i]);
  }
}

Status CallPools::CheckRoom(const Identity& caller) {
  if (unary(CallRoleOf(caller))->waiting() < options_.most_waiting) {
    return OkStatus();
  }
  return WithReason(
      ResourceExhausted("{} calls with the role of {} are waiting already: "
                        "try again in a moment",
                        options_.most_waiting, Describe(caller)),
      "BUSY");
}

}  // namespace lockstep
