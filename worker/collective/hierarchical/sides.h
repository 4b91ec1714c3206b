// The two communicators of a rank: that of its host, and that of its place on
// all hosts.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_SIDES_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_SIDES_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/hierarchical/linked_abort.h"
#include "worker/collective/hierarchical/staged_memory.h"

namespace lockstep::worker::collective::hierarchical {

// One communicator, and the global ranks of its ranks. The communicator is null
// where this rank is alone on that side.
struct Side {
  std::unique_ptr<Communicator> communicator;
  std::vector<int> ranks;
};

// Translates an error of one side into one of the whole, together with the
// peers that it names as lost. `ranks`: the side's ranks, among all `size`.
// kAborted carries a reason of the user's, whose ranks are global.
Status Translate(const Status& status, const std::vector<int>& ranks, int size);

// Starts the stages of operations on both sides, and waits for them. The first
// error of one side ends both, so that nothing touches a slice later and peers
// of the other side do not wait for this rank.
//
// Used by the thread that executes, except Cut and CurrentWait, which any
// thread may call.
class Sides {
 public:
  // Both communicators report to `linked_abort` when they break.
  Sides(int size, Side within, Side between,
        std::shared_ptr<LinkedAbort> linked_abort);
  ~Sides();
  Sides(const Sides&) = delete;
  Sides& operator=(const Sides&) = delete;

  // Buffers that both sides know.
  StagedMemory* memory() { return &memory_; }
  bool has_between() const { return between_.communicator != nullptr; }

  // Within the host: starts `operation` and waits for its end. The buffer is
  // the communicator's own.
  Status RunWithin(const Operation& operation, MonoTime deadline);
  // Between the hosts. The buffer is the communicator's own.
  StatusOr<std::unique_ptr<Work>> StartBetween(const Operation& operation);
  Status WaitBetween(Work* work, MonoTime deadline);

  // Communicator::Tune, FollowPlan and ReductionPlan of the communicator
  // between the hosts, which exists.
  Status TuneBetween(Duration budget, MonoTime deadline);
  Status FollowBetween(const std::string& line, MonoTime deadline);
  std::string BetweenPlan() const {
    return between_.communicator->ReductionPlan();
  }

  // Ends both sides.
  void Cut();
  // The first error of either.
  Status error() const { return linked_abort_->first(); }
  // Communicator::CurrentWait: of the side that the thread is in.
  std::optional<PeerWait> CurrentWait() const;
  // No operation runs any more.
  void Rest() { stage_.store(Stage::kNone, std::memory_order_relaxed); }

 private:
  enum class Stage { kNone, kWithin, kBetween };

  StatusOr<std::unique_ptr<Work>> Start(const Side& side,
                                        const Operation& operation);
  Status Fail(const Side& side, const Status& status);
  void Enter(Stage stage) { stage_.store(stage, std::memory_order_relaxed); }

  const int size_;
  const Side within_;
  const Side between_;
  const std::shared_ptr<LinkedAbort> linked_abort_;
  StagedMemory memory_;
  std::atomic<Stage> stage_ = Stage::kNone;
};

}  // namespace lockstep::worker::collective::hierarchical

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_SIDES_H_
