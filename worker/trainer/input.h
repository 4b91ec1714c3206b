// Taking batches from a prefetcher.
#ifndef LOCKSTEP_WORKER_TRAINER_INPUT_H_
#define LOCKSTEP_WORKER_TRAINER_INPUT_H_

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/data/prefetcher.h"

namespace lockstep {

// Longer than any disk takes that still works, shorter than what peers wait in
// a reduction for this rank.
inline constexpr Duration kInputDeadline = std::chrono::minutes(4);

// The next batch, or Prefetcher::Next's errors; DeadlineExceeded when none
// came for kInputDeadline.
inline Status NextBatch(Prefetcher* prefetcher, Batch* batch) {
  const Status status =
      prefetcher->Next(batch, MonotonicNow() + kInputDeadline);
  if (status.code() != StatusCode::kDeadlineExceeded) return status;
  return DeadlineExceeded("no sample could be read for {}",
                          FormatDuration(kInputDeadline));
}

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_INPUT_H_
