// What configures a coordinator.
#ifndef LOCKSTEP_SERVER_COORDINATOR_OPTIONS_H_
#define LOCKSTEP_SERVER_COORDINATOR_OPTIONS_H_

#include <cstddef>
#include <functional>
#include <string>

#include "common/base/clock.h"
#include "server/coordinator/idempotency_cache.h"
#include "server/coordinator/observer.h"
#include "server/coordinator/rendezvous_table.h"
#include "server/core/assignments.h"
#include "server/core/bill.h"
#include "server/core/images.h"
#include "server/core/inquiry.h"
#include "server/core/lifecycle.h"
#include "server/core/membership.h"
#include "server/core/scheduler.h"
#include "server/core/stall.h"
#include "server/core/strikes.h"

namespace lockstep {

// The jobs of one user that have not ended: their number, and the bytes of what
// the user wrote in them.
struct QuotaLimits {
  size_t jobs = 10'000;
  size_t bytes = 64 << 20;
};

struct CoordinatorLimits {
  QuotaLimits per_user;
  RendezvousLimits rendezvous;
  IdempotencyLimits answers;
};

struct RetentionOptions {
  // A job is deleted this long after its end, or earlier when there are more
  // than `job_count` jobs that have ended.
  Duration jobs = std::chrono::hours(24 * 30);
  size_t job_count = 10'000;
  // How long the answer to a request id is remembered.
  Duration requests = std::chrono::hours(24);
  // Called when the job with this uid was deleted, by age or by a command: its
  // logs may go. Must not block or call the coordinator.
  std::function<void(const std::string& uid)> on_deleted;
};

struct CoordinatorOptions {
  LifecycleTimeouts timeouts;
  StopGraces graces;
  MembershipOptions membership;
  InquiryOptions inquiry;
  SchedulerOptions scheduler;
  PrefetchOptions prefetch;
  Prices prices;
  StallOptions stall;
  StrikeOptions strikes;
  // How long a restarted daemon may take to find its tasks again.
  Duration adoption_window = std::chrono::seconds(60);
  CoordinatorLimits limits;
  RetentionOptions retention;
  // Sources of unique job ids and of random keys.
  std::function<std::string()> new_uid;
  std::function<std::string()> new_key;
  // May be null; outlives the coordinator.
  CoordinatorObserver* observer = nullptr;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_OPTIONS_H_
