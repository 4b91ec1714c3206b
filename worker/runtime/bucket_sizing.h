// How large buckets should be: large enough that what a message costs whatever
// its size is a small part of it, and no larger, so that reducing starts early
// and ends soon after the last gradient.
#ifndef LOCKSTEP_WORKER_RUNTIME_BUCKET_SIZING_H_
#define LOCKSTEP_WORKER_RUNTIME_BUCKET_SIZING_H_

#include <cstddef>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/runtime/small_collectives.h"

namespace lockstep::worker::runtime {

// An all-reduce of n bytes takes fixed + n * per_byte (Hockney, 1994: the
// alpha-beta model).
struct MessageCost {
  double fixed_seconds = 0;
  double seconds_per_byte = 0;
};

// The part of a bucket's time that its fixed cost may take.
inline constexpr double kFixedShare = 0.03;

// The smallest n, in whole MiB from 1 to 25, with
//   fixed / (fixed + n * per_byte) <= kFixedShare.
// PURE. Costs that are no numbers of a line (nothing a byte) give 1 MiB.
size_t BucketBytesFor(const MessageCost& cost);
// "one message costs 60 us, a MiB 0.5 ms". PURE.
std::string Describe(const MessageCost& cost);

// Times some all-reduces of 1 KiB, 64 KiB, 512 KiB and 2 MiB, of each the
// quickest on rank 0 counts; larger ones are left out where they would go
// beyond `budget`. The line is that through the two largest: they are reduced
// as buckets are, while the smallest may go another way. Its fixed part is not
// less than the smallest took. Collective; every rank ends with what rank 0
// found. Takes 2 MiB of the communicator's memory.
StatusOr<MessageCost> MeasureMessages(collective::Communicator* communicator,
                                      SmallCollectives* small, Duration budget,
                                      Duration operation_timeout);

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_BUCKET_SIZING_H_
