// The order of samples, and the rank that reads each.
//
// PURE: no files, no threads. A permutation of (seed, epoch) orders the samples
// of all shards for each epoch. One global cursor walks along it: a step takes
// the next `global_batch` positions, or fewer at the end of the epoch, and each
// rank takes its contiguous stripe of the step. So every sample is read exactly
// once an epoch for any number of ranks, even if it changes in the middle, and
// the samples of a step depend on the cursor alone.
//
// Weights correct the short last step, never repeated samples: ranks add sums
// of gradients divided by the global count of the step.
//
// Every rank must have the same shards, options and cursor. The order is part
// of the meaning of a checkpoint (see permutation.h).
#ifndef LOCKSTEP_WORKER_DATA_SHARD_PLAN_H_
#define LOCKSTEP_WORKER_DATA_SHARD_PLAN_H_

#include <cstdint>
#include <vector>

#include "common/base/status.h"

namespace lockstep::worker::data {

// The position of a training in its data. Moves by whole steps.
struct DataCursor {
  uint64_t epoch = 0;
  uint64_t position = 0;  // Samples of this epoch that have been taken.

  bool operator==(const DataCursor&) const = default;
};

// The samples [begin.position, begin.position + count) of one epoch.
struct DataStep {
  DataCursor begin;
  uint64_t count = 0;  // All ranks together; at least 1.
  DataCursor end;      // The beginning of the next step.
};

// A part of a step: positions [first, first + count) of its epoch.
struct DataStripe {
  uint64_t first = 0;
  uint64_t count = 0;  // 0 is possible where a step is short.
};

// Record `record` of shard `shard`, both from 0.
struct SampleRef {
  uint32_t shard = 0;
  uint64_t record = 0;

  bool operator==(const SampleRef&) const = default;
};

struct ShardPlanOptions {
  uint64_t seed = 0;
  uint64_t global_batch = 0;  // Samples a step, over all ranks.
  // False: the order of the shards in every epoch, as for an evaluation.
  bool shuffle = true;
};

class ShardPlan {
 public:
  // `counts[i]` is how many records shard i has; 0 is allowed.
  // InvalidArgument: there are no samples, more than 2^62, or no global batch.
  static StatusOr<ShardPlan> Create(const std::vector<uint64_t>& counts,
                                    const ShardPlanOptions& options);

  uint64_t samples() const { return starts_.back(); }
  const ShardPlanOptions& options() const { return options_; }
  uint64_t steps_per_epoch() const;

  // Returns the step that begins at `cursor`. A cursor at the end of an epoch
  // is the beginning of the next. InvalidArgument: it is past the end, so it is
  // of another data set.
  StatusOr<DataStep> StepAt(DataCursor cursor) const;

  // The stripe of `rank` among `world` ranks. Stripes differ by at most one
  // sample and lie in the order of the ranks.
  // REQUIRES: rank < world.
  static DataStripe StripeOf(const DataStep& step, uint64_t rank,
                             uint64_t world);

  // The samples at the positions of `stripe` in `epoch`, in that order.
  // REQUIRES: the stripe is one of this plan's.
  std::vector<SampleRef> Samples(uint64_t epoch, DataStripe stripe) const;

 private:
  ShardPlan(std::vector<uint64_t> starts, const ShardPlanOptions& options)
      : starts_(std::move(starts)), options_(options) {}
  SampleRef Locate(uint64_t sample) const;

  // The number of each shard's first sample, then the number of all samples.
  std::vector<uint64_t> starts_;
  ShardPlanOptions options_;
};

}  // namespace lockstep::worker::data

#endif  // LOCKSTEP_WORKER_DATA_SHARD_PLAN_H_
