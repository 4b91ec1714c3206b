// The options of a coordinator.
#ifndef LOCKSTEP_SERVER_COORDINATOR_OPTIONS_H_
#define LOCKSTEP_SERVER_COORDINATOR_OPTIONS_H_

#include <cstddef>
#include <functional>
#include <string>

#include "common/base/clock.h"
#include "server/coordinator/found_ranks.h"
#include "server/coordinator/idempotency_cache.h"
#include "server/coordinator/observer.h"
#include "server/coordinator/rendezvous_table.h"
#include "server/core/assignments.h"
#include "server/core/bill.h"
#include "server/core/idle_watch.h"
#include "server/core/images.h"
#include "server/core/inquiry.h"
#include "server/core/lifecycle.h"
#include "server/core/membership.h"
#include "server/core/scheduler.h"
#include "server/core/silence.h"
#include "server/core/stall.h"
#include "server/core/strikes.h"

namespace lockstep::server {

// Limits of one user's unfinished jobs: their number, and the bytes of their
// specs.
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
  // A job is deleted this long after its end, or earlier if there are more than
  // `job_count` ended jobs.
  Duration jobs = std::chrono::hours(24 * 30);
  size_t job_count = 10'000;
  // How long the answer to a request id is kept.
  Duration requests = std::chrono::hours(24);
  // Called after the job with this uid was deleted, by age or command, so that
  // its logs can be deleted. Must not block or call the coordinator.
  std::function<void(const std::string& uid)> on_deleted;
};

struct CoordinatorOptions {
  LifecycleTimeouts timeouts;
  StopGraces graces;
  MembershipOptions membership;
  InquiryOptions inquiry;
  SilenceOptions silence;
  SchedulerOptions scheduler;
  PrefetchOptions prefetch;
  Prices prices;
  StallOptions stall;
  // For jobs that have no times of their own.
  IdlePolicy idle;
  StrikeOptions strikes;
  // How long a restarted daemon may take to find its tasks.
  Duration adoption_window = std::chrono::seconds(60);
  CoordinatorLimits limits;
  RetentionOptions retention;
  // Generate unique job ids and random keys.
  std::function<std::string()> new_uid;
  std::function<std::string()> new_key;
  // May be null. Outlives the coordinator.
  CoordinatorObserver* observer = nullptr;
  // The nodes of a job that has stalled keep evidence of these ranks. Called as
  // the observer is. May be empty.
  std::function<void(const FoundRanks& ranks)> on_captured;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_OPTIONS_H_
