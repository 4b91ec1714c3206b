// Limits the concurrent calls of one role and of one caller. Further calls wait
// in a queue, without a thread.
#ifndef LOCKSTEP_SERVER_STREAM_ADMISSION_LIMITER_H_
#define LOCKSTEP_SERVER_STREAM_ADMISSION_LIMITER_H_

#include <list>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/pki/identity.h"
#include "common/rpc/call_pools.h"
#include "server/stream/stream_reactor.h"

namespace lockstep::server {

struct AdmissionLimits {
  // Concurrent calls per role, so that no role delays another.
  int concurrent = 0;
  // Concurrent calls per caller.
  int per_caller = 0;
  // Waiting calls per role, and how long they wait.
  int waiting = 256;
  Duration patience = std::chrono::seconds(20);
  // Waiting calls per caller for each of `per_caller`, so that no caller fills
  // its role's queue.
  int waiting_per_slot = 4;
};

// Thread-safe.
class AdmissionLimiter {
 public:
  // `what` names the calls: "uploads".
  AdmissionLimiter(std::string what, const AdmissionLimits& limits)
      : what_(std::move(what)), limits_(limits) {}

  // One call. Must end before its call and before the limiter. Its functions
  // are called serially.
  class Ticket {
   public:
    // `peer`, which outlives it, is woken when the call is admitted.
    Ticket(AdmissionLimiter* limiter, const pki::Identity& caller,
           StreamPeer* peer);
    ~Ticket();
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    // OK if the call is admitted. Unavailable (reason BUSY) if the queue is
    // full or the wait was too long. Nullopt while it waits, until deadline().
    std::optional<Status> Poll();
    MonoTime deadline() const { return deadline_; }
    // The peer has sent or taken a message.
    void Progress();

   private:
    friend class AdmissionLimiter;
    enum class State { kWaiting, kAdmitted, kRejected };
    AdmissionLimiter* const limiter_;
    StreamPeer* const peer_;
    const std::string caller_;
    const CallRole role_;
    const MonoTime deadline_;
    State state_ ABSL_GUARDED_BY(limiter_->mu_) = State::kWaiting;
    MonoTime last_progress_ ABSL_GUARDED_BY(limiter_->mu_);
  };

  // Cancels the calls without progress since `time`.
  void CancelIdle(MonoTime time);

 private:
  bool IsFull(const Ticket& ticket) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The queue has room for the call.
  bool MayWait(const Ticket& ticket) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Admitted calls of the role.
  int AdmittedOf(CallRole role) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status Busy(CallRole role) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Admit(Ticket* ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Admits waiting calls after one has ended.
  void AdmitNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string what_;
  const AdmissionLimits limits_;
  Mutex mu_;
  // FIFO.
  std::list<Ticket*> waiting_ ABSL_GUARDED_BY(mu_);
  std::set<Ticket*> admitted_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STREAM_ADMISSION_LIMITER_H_
