// The Reducer over a Communicator: buckets, control word and waits. Needs no
// session: tests run it over any communicator.
//
// The last bucket ends in the tail, float32 words that are summed with the
// gradients:
//   0-15   the control word
//   16-17  samples of the step: low 12 bits, and the rest
//   18-19  sum of losses: rounded to float32, and what rounding took off
//   20...  one word a rank: microseconds for which the step before held it up
//          after its own arrival (see phase_timer.h); others add 0
#ifndef LOCKSTEP_WORKER_RUNTIME_STEPPED_REDUCER_H_
#define LOCKSTEP_WORKER_RUNTIME_STEPPED_REDUCER_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/collective/bucket_plan.h"
#include "worker/runtime/progress.h"
#include "worker/runtime/reducer.h"
#include "worker/runtime/step_controller.h"

namespace lockstep {

struct SteppedReducerOptions {
  ReducerOptions reducer;
  uint64_t generation = 0;
  uint64_t fingerprint = 0;
  int64_t checkpoint_interval = 0;
  Duration operation_timeout = std::chrono::seconds(300);
  // Borrowed; must outlive the reducer.
  Communicator* communicator = nullptr;
  Progress* progress = nullptr;
  // Called before each step: offers what came in meanwhile. May be empty.
  std::function<void(StepController*)> before_step;
  // Rank 0 hears that some rank was told to drain: once. May be empty.
  std::function<void()> on_drain;
};

// The plan that MakeSteppedReducer uses: pure, for comparing between ranks.
StatusOr<BucketPlan> PlanGradients(const std::vector<Parameter>& parameters,
                                   size_t bucket_bytes, int world_size);

StatusOr<std::unique_ptr<Reducer>> MakeSteppedReducer(
    const std::vector<Parameter>& parameters, SteppedReducerOptions options);

// True where no element is NaN or infinite.
bool AllFinite(std::span<const float> values);

// Reason of every error that a peer or the end of the generation caused.
inline constexpr char kReasonPeerLost[] = "PEER_LOST";
// Errors of a communicator or link: those that are not this rank's own get
// kReasonPeerLost.
Status MarkPeerLost(const Status& status);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_RUNTIME_STEPPED_REDUCER_H_
