// Orders for a rank that come from outside the training loop, until the next
// step takes them in; and what became of the checkpoints among them.
#ifndef LOCKSTEP_WORKER_RUNTIME_SESSION_ORDERS_H_
#define LOCKSTEP_WORKER_RUNTIME_SESSION_ORDERS_H_

#include <atomic>
#include <cstdint>
#include <deque>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/rank_link/client.h"
#include "worker/runtime/step_controller.h"

namespace lockstep::worker::runtime {

// Safe from any thread, except Offer, which is the training loop's.
class PendingOrders {
 public:
  void RequestDrain() { drain_.store(true, std::memory_order_relaxed); }
  void Add(const v1::RankDirective& directive);
  // Gives all that came since the last call to `controller`.
  void Offer(StepController* controller);

 private:
  std::atomic<bool> drain_ = false;
  Mutex mu_;
  std::deque<v1::RankDirective> directives_ ABSL_GUARDED_BY(mu_);
};

// Whether the last checkpoint of this attempt was saved. Saved may be called
// from any thread, the other functions from the training loop's.
class CheckpointRecord {
 public:
  // This rank voted on the checkpoint of `step`.
  void Tried(int64_t step) { tried_ = step; }
  // A checkpoint of `step` was reported as saved.
  void Saved(int64_t step);
  // Another rank is the chief from now on, which may know more.
  void Forget() { tried_ = -1; }
  // The ranks were ordered to stop early: the job goes on elsewhere from an
  // older checkpoint, so the last one need not be saved.
  void StoppedEarly() { stopped_early_ = true; }

  // DataLoss, with the reason CHECKPOINT_FAILED: the last checkpoint that was
  // tried was not saved.
  Status Check() const;

 private:
  int64_t tried_ = -1;               // -1: none
  std::atomic<int64_t> saved_ = -1;  // -1: none
  bool stopped_early_ = false;
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_SESSION_ORDERS_H_
