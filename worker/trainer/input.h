// Takes batches from a prefetcher.
#ifndef LOCKSTEP_WORKER_TRAINER_INPUT_H_
#define LOCKSTEP_WORKER_TRAINER_INPUT_H_

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/data/prefetcher.h"
#include "worker/runtime/progress.h"

namespace lockstep::worker::trainer {

// Longer than any disk takes that still works, shorter than what peers wait in
// a reduction for this rank.
inline constexpr Duration kInputDeadline = std::chrono::minutes(4);

// The next batch, or Prefetcher::Next's errors; DeadlineExceeded when none
// came for kInputDeadline.
inline Status NextBatch(data::Prefetcher* prefetcher, data::Batch* batch) {
  const Status status =
      prefetcher->Next(batch, MonotonicNow() + kInputDeadline);
  if (status.code() != StatusCode::kDeadlineExceeded) return status;
  return DeadlineExceeded("no sample could be read for {}",
                          FormatDuration(kInputDeadline));
}

// The samples of this rank's shards of the global batch, for each a batch a
// step. Thread-compatible.
class SampleInput {
 public:
  // Reads the stripe of each of `shards` where `options` has that of a rank; as
  // many threads and prefetched steps are for each. The errors of
  // Prefetcher::Start. `before`: counters() of the input that this one
  // replaces, as totals only grow. REQUIRES: there is a shard, and each is
  // below options.world.
  static StatusOr<std::unique_ptr<SampleInput>> Start(
      std::shared_ptr<const data::Dataset> dataset, const data::ShardPlan& plan,
      const data::PrefetcherOptions& options, std::span<const int> shards,
      const task::InputCounters& before = {});

  // In the order of `shards`.
  size_t shards() const { return prefetchers_.size(); }
  // Gets the next batch of the i-th shard. Writes the counters of all shards to
  // `progress`, also when reading failed.
  Status Next(size_t i, runtime::Progress* progress);
  // The last one.
  const data::Batch& batch() const { return batch_; }
  // Of all shards together.
  task::InputCounters counters() const;

 private:
  SampleInput(std::vector<std::unique_ptr<data::Prefetcher>> prefetchers,
              size_t depth, const task::InputCounters& before)
      : prefetchers_(std::move(prefetchers)), depth_(depth), before_(before) {}

  const std::vector<std::unique_ptr<data::Prefetcher>> prefetchers_;
  const size_t depth_;
  const task::InputCounters before_;
  data::Batch batch_;
};

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_INPUT_H_
