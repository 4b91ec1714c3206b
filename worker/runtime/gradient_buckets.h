// The gradients of one reducer: their places in its memory, and which of them
// have been written, checked and may be reduced in this step.
//
// All buckets lie one behind the other in one piece of memory
// (gradient_memory.h), so another order (Rearrange) needs no more memory. With
// bfloat16 on the wire the gradients are in memory of this object, and are
// rounded into the buckets and widened again.
//
// On a device (ReducerOptions::device_stream) this only knows the places of
// gradients; device_gradients.h works on them. The tail's place behind the last
// gradient stays zero there.
//
// Thread-compatible. Knows nothing of time or peers.
#ifndef LOCKSTEP_WORKER_RUNTIME_GRADIENT_BUCKETS_H_
#define LOCKSTEP_WORKER_RUNTIME_GRADIENT_BUCKETS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/bucket_plan.h"
#include "worker/collective/communicator.h"
#include "worker/runtime/gradient_memory.h"
#include "worker/runtime/gradients.h"
#include "worker/runtime/reducer.h"

namespace lockstep::worker::runtime {

// Which gradients of the step under way have been written, checked and may be
// reduced.
class GradientStates {
 public:
  explicit GradientStates(size_t gradients) : state_(gradients) {}

  // A new step, with the buckets of `plan`.
  void Begin(const collective::BucketPlan& plan);

  // Notes the event; whether it had happened before.
  bool MarkAdded(size_t i) { return std::exchange(state_[i].added, true); }
  bool MarkLookedAt(size_t i) {
    return std::exchange(state_[i].looked_at, true);
  }
  // Gradient i, of `bucket`, will not be written any more. Once a step.
  void MarkReady(size_t i, size_t bucket) {
    state_[i].ready = true;
    --missing_[bucket];
  }
  void MarkFinite(bool finite) { nonfinite_ = nonfinite_ || !finite; }

  bool ready(size_t i) const { return state_[i].ready; }
  // All gradients of the bucket are ready.
  bool full(size_t bucket) const { return missing_[bucket] == 0; }
  // Some gradient that was looked at was not finite.
  bool nonfinite() const { return nonfinite_; }

 private:
  struct State {
    bool added = false;
    bool ready = false;
    bool looked_at = false;
  };
  std::vector<State> state_;
  std::vector<size_t> missing_;  // by bucket
  bool nonfinite_ = false;
};

class GradientBuckets {
 public:
  // Borrows the communicator and allocates there. Its own errors, and those of
  // PlanGradients. `shards` and the communicator are as in GradientMemory.
  static StatusOr<std::unique_ptr<GradientBuckets>> Create(
      collective::Communicator* communicator,
      const std::vector<Parameter>& parameters, const ReducerOptions& options,
      const collective::BucketSizes& sizes, int shards = 0);

  // A recovery (GradientMemory::Rebind). All gradients become zero, on a device
  // only once its memory is cleared.
  Status Rebind(collective::Communicator* communicator);

  size_t parameters() const { return parameters_.size(); }
  std::span<float> gradient(size_t i) { return gradients_[i]; }
  const GradientMemory& memory() const { return memory_; }
  // REQUIRES: not on a device; also of all below that look into a gradient.
  void Zero();
  // Changes where gradients lie; all become zero, on a device only once its
  // memory is cleared. Between steps.
  Status Rearrange(std::vector<uint32_t> order);
  const std::vector<uint32_t>& order() const { return options_.order; }
  const std::string& plan_hash() const { return plan_.hash; }

  // The operations of a step, in the order in which they start: one a bucket.
  // The last one carries the tail, and starts when that is written; on a device
  // the tail follows by itself.
  size_t buckets() const { return plan_.buckets.size(); }
  collective::Slice slice(size_t bucket) const;
  // With the room behind it, which is zero.
  std::span<float> room(size_t bucket);
  // The slice of all buckets; gaps are zero before and after a step.
  collective::Slice whole() const;
  // The tail, and the slice that has it alone. The host's, writable.
  const TailPlace& tail() const { return memory_.tail(); }

  // The step under way. ----------------------------------------------------

  void BeginStep();
  // Adds to gradient i; the first of a step replaces what was there.
  void Add(size_t i, std::span<const float> gradient);
  // Gradient i will not be written any more. Once a step.
  void SetReady(size_t i);
  // The same, after Add of `gradient`, in one pass.
  void AddLast(size_t i, std::span<const float> gradient);
  void SetAllReady();
  // Before a full bucket is reduced: checks the gradients that AddLast did not.
  void Seal(size_t bucket);
  const GradientStates& states() const { return states_; }

  // After all is reduced.
  void Take();

 private:
  GradientBuckets(collective::Communicator* communicator, int shards,
                  const std::vector<Parameter>& parameters,
                  const ReducerOptions& options,
                  const collective::BucketSizes& sizes)
      : memory_(communicator, shards, options.device_stream != nullptr),
        parameters_(parameters),
        sizes_(sizes),
        options_(options),
        gradients_(parameters.size()),
        wire_(parameters.size()),
        bucket_of_(parameters.size()),
        states_(parameters.size()) {}
  void Lay();

  GradientMemory memory_;
  const std::vector<Parameter> parameters_;
  const collective::BucketSizes sizes_;
  ReducerOptions options_;
  collective::BucketPlan plan_;
  std::vector<size_t> begin_;  // By bucket, in bytes.
  std::vector<float> wide_;    // The gradients, with bfloat16 on the wire.
  std::vector<std::span<float>> gradients_;
  std::vector<std::span<uint16_t>> wire_;  // With bfloat16 on the wire.
  std::vector<size_t> bucket_of_;

  GradientStates states_;
};

// Sum of the squares of rank `rank`'s part of all gradients, on the host; those
// of all ranks add up to that of the whole.
double SquaresOfPart(GradientBuckets* buckets, int rank, int size);

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_GRADIENT_BUCKETS_H_
