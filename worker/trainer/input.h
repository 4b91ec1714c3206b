// Takes batches from a prefetcher.
#ifndef LOCKSTEP_WORKER_TRAINER_INPUT_H_
#define LOCKSTEP_WORKER_TRAINER_INPUT_H_

#include <memory>

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

// The samples of this rank, a batch a step. Thread-compatible.
class SampleInput {
 public:
  // The errors of Prefetcher::Start.
  static StatusOr<std::unique_ptr<SampleInput>> Start(
      std::shared_ptr<const data::Dataset> dataset, const data::ShardPlan& plan,
      const data::PrefetcherOptions& options);

  // Gets the next batch. Writes the counters to `progress`, also when reading
  // failed.
  Status Next(runtime::Progress* progress);
  // The last one.
  const data::Batch& batch() const { return batch_; }

 private:
  SampleInput(std::unique_ptr<data::Prefetcher> prefetcher, size_t depth)
      : prefetcher_(std::move(prefetcher)), depth_(depth) {}

  const std::unique_ptr<data::Prefetcher> prefetcher_;
  const size_t depth_;
  data::Batch batch_;
};

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_INPUT_H_
