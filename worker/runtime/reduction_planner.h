// The reduction plan of one generation (common/model/reduction_plan.h): takes
// over the job's where it fits these ranks and gradients, else makes one, by
// measurement where measuring decides.
//
// A plan that an earlier generation made and that does not fit is dropped, and
// a sentence for the job's events says so. A pinned one is the user's: where it
// does not fit, the job fails with reason CONFIG_MISMATCH, which no restart
// would change.
//
// Used in this order, by all ranks: Check, [the communicator is formed;
// Refuse], CheckPinned, Make, [Learn]. In a recovery, by a rank that has no
// plan, Follow before the communicator is formed. Thread-compatible.
#ifndef LOCKSTEP_WORKER_RUNTIME_REDUCTION_PLANNER_H_
#define LOCKSTEP_WORKER_RUNTIME_REDUCTION_PLANNER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/reduction_plan.h"
#include "worker/collective/communicator.h"
#include "worker/runtime/bucket_sizing.h"
#include "worker/runtime/gradients.h"
#include "worker/runtime/order_learner.h"
#include "worker/runtime/reducer.h"
#include "worker/runtime/small_collectives.h"

namespace lockstep::worker::runtime {

struct PlannerOptions {
  int ranks = 1;
  int hosts = 0;  // 0: not said.
  // As the job has it; empty: none.
  std::string text = {};
  bool pinned = false;
  // The ranks sum by shards (shard_reduction.h): "shards=N" in place of the
  // communicator's plan; over nccl, where members add their shards up first,
  // "nccl shards=N". Buckets have sizes that need no measuring and no
  // communicator, so that each rank makes the same plan by itself.
  enum class Elastic { kNo, kByShards, kOverNccl };
  Elastic elastic = Elastic::kNo;
  // For choosing how the communicator reduces, and then for buckets.
  Duration tune_budget = std::chrono::milliseconds(50);
  Duration measure_budget = std::chrono::milliseconds(50);
  Duration operation_timeout = std::chrono::seconds(300);
};

class ReductionPlanner {
 public:
  // Parameters of the reducer.
  struct Made {
    collective::BucketSizes sizes;
    LearnedOrder learned;
    // False for a pinned plan without an order: none is learned.
    bool learn_order = false;
    std::vector<uint32_t> order;
    // For the event that says how the ranks reduce: "buckets of 4 MiB: one
    // message costs 60 us, a MiB 0.5 ms".
    std::string how;
  };

  static collective::BucketSizes ElasticSizes(const ReducerOptions& reducer) {
    return collective::SizesFor("shards", reducer.bucket_bytes);
  }

  explicit ReductionPlanner(PlannerOptions options)
      : options_(std::move(options)) {}

  // Before forming: checks that the job's plan is for this shape.
  Status Check();
  // CommunicatorOptions::reduction_plan.
  std::string communicator() const {
    return plan_ && !elastic() ? plan_->communicator : "";
  }
  // The communicator refused the plan with `why`. OK: form without it.
  Status Refuse(const Status& why);

  // Checks that a pinned plan is for these gradients. Called before anything is
  // compared with peers, so that each rank returns the error itself.
  // `communicator` may be null where elastic; also in Make.
  Status CheckPinned(const collective::Communicator* communicator,
                     const std::vector<Parameter>& parameters,
                     const ReducerOptions& reducer);
  // Without a plan, tunes the communicator and measures, collectively. With one
  // rank there is no plan. The communicator's errors.
  StatusOr<Made> Make(collective::Communicator* communicator,
                      SmallCollectives* small,
                      const std::vector<Parameter>& parameters,
                      const ReducerOptions& reducer);
  void Learn(const std::vector<uint32_t>& order, int64_t at,
             const std::string& layout);

  // Empty: there is none, or none that can be kept.
  const std::string& text() const { return text_; }
  std::string hash() const { return plan_ ? HashOf(*plan_) : ""; }
  // In a recovery: takes the plan `text` of the ranks that have a state. It
  // must fit. CONFIG_MISMATCH.
  Status Follow(const std::string& text);
  // The plan without what is learned on the way, for comparing.
  std::string Shape() const;
  // Sentences for the job's events since the last call.
  std::vector<std::string> TakeNotes() { return std::exchange(notes_, {}); }

 private:
  bool elastic() const {
    return options_.elastic != PlannerOptions::Elastic::kNo;
  }
  Status DoesNotFit(const std::string& why);
  // What plan_->communicator must be.
  std::string PlanOf(const collective::Communicator* communicator) const;
  Status CheckFit(const collective::Communicator* communicator,
                  const std::vector<Parameter>& parameters,
                  const ReducerOptions& reducer);
  StatusOr<std::string> MakeNew(collective::Communicator* communicator,
                                SmallCollectives* small,
                                const ReducerOptions& reducer);
  void SetPlan(const collective::BucketSizes& sizes,
               const ReducerOptions& reducer, const std::string& how);
  StatusOr<std::string> LayoutOf(const std::vector<Parameter>& parameters,
                                 const ReducerOptions& reducer) const;
  void Write();

  const PlannerOptions options_;
  std::optional<ReductionPlan> plan_;
  std::string text_;
  // The plan is the peers': no other is made.
  bool followed_ = false;
  std::vector<std::string> notes_;
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_REDUCTION_PLANNER_H_
