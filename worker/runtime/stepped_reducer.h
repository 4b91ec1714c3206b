// The Reducer over a Communicator: buckets, and in the last one, or behind
// them, the tail of step_tail.h. Needs no session: tests run it over any
// communicator.
//
// Where the communicator makes progress inline, the time spent in it is the
// all-reduce phase and busy: computing does not hide it. Otherwise all-reduce
// busy time (RankCounters) is the time in which some bucket of the step ran, as
// Work::ran says, before the rank only had to wait, and all of that wait, which
// is the phase. The wait of Finish for a late rank is subtracted again. The
// wait of earlier buckets for it, behind computing, is not, because no rank can
// measure it. So 1 - all-reduce phase / busy is the part of communication that
// computing hides.
#ifndef LOCKSTEP_WORKER_RUNTIME_STEPPED_REDUCER_H_
#define LOCKSTEP_WORKER_RUNTIME_STEPPED_REDUCER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/collective/communicator.h"
#include "worker/runtime/gradients.h"
#include "worker/runtime/membership.h"
#include "worker/runtime/order_learner.h"
#include "worker/runtime/progress.h"
#include "worker/runtime/reducer.h"
#include "worker/runtime/step_controller.h"

namespace lockstep::worker::runtime {

struct SteppedReducerOptions {
  ReducerOptions reducer;
  uint64_t generation = 0;
  uint64_t fingerprint = 0;
  int64_t checkpoint_interval = 0;
  Duration operation_timeout = std::chrono::seconds(300);
  // Borrowed; must outlive the reducer, or its Unbind. Null: the reducer is
  // elastic, and Rebind brings one.
  collective::Communicator* communicator = nullptr;
  // The ranks of `communicator`; else only their number in the job counts.
  Membership membership = {};
  // By shards: shard_reduction.h, or over nccl, where a communicator is needed
  // from the start, bucket_reduction.h. No order is used, and none is learned.
  bool elastic = false;
  Progress* progress = nullptr;
  // Absent: those for the backend and reducer.bucket_bytes.
  std::optional<collective::BucketSizes> sizes;
  // The order of an earlier generation; it overrides reducer.order, and none is
  // learned.
  LearnedOrder learned;
  // All ranks: from now on buckets are filled in this order.
  std::function<void(const std::vector<uint32_t>& order, int64_t committed,
                     const std::string& layout)>
      on_order;
  // Called before each step: offers the orders that came meanwhile. May be
  // empty.
  std::function<void(StepController*)> before_step;
  // Called once on the chief when some rank was ordered to drain. May be empty.
  std::function<void()> on_drain;
  // Called when this rank votes on that checkpoint. May be empty.
  std::function<void(const CheckpointOrder&)> on_vote;
  // Called when the ranks stop as ordered, before the planned end. May be
  // empty.
  std::function<void()> on_early_stop;
};

// A reducer that outlives its communicator: a recovery puts it into another
// one, of the same size unless it is elastic.
class RecoverableReducer : public Reducer {
 public:
  // Leaves the communicator. FailedPrecondition: a check has
  // failed, so that no step may follow.
  virtual Status Unbind() = 0;
  // After Unbind. Gradients keep their addresses and become zero.
  virtual Status Rebind(collective::Communicator* communicator,
                        const Membership& membership) = 0;
  // Orders and the layout of the buckets, equal on all ranks with this one's
  // state.
  virtual std::string Agreed() const = 0;
  // This rank has the state that `agreed` belongs to; all ranks take the same.
  // The next step begins. Returns the orders of StepController::Import.
  virtual StatusOr<StepOrders> Resume(const std::string& agreed,
                                      uint64_t generation,
                                      uint64_t fingerprint) = 0;
};

StatusOr<std::unique_ptr<RecoverableReducer>> MakeSteppedReducer(
    const std::vector<Parameter>& parameters, SteppedReducerOptions options);

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_STEPPED_REDUCER_H_
