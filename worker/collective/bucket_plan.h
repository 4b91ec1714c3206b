// The places of gradients in buckets. Pure and deterministic.
//
// Gradients become ready in about the reverse order of the parameters, so the
// plan fills buckets in the order given (the caller gives it reversed, or as it
// has learned it): the first bucket is small, so that reducing starts early,
// the others are of bounded size, and the last one, which starts when nothing
// is left to hide it, is small again. Parameters of one bucket have one type; a
// parameter that is larger than a bucket has one to itself. Each starts at a
// multiple of 64 bytes; the gaps stay zero and are reduced with the rest.
//
// The last bucket ends in the control word: `control_words` float32 that the
// ranks sum with their gradients. When the last bucket has another type, or
// there is none, the control word is a bucket of its own.
//
// Every rank must have the same plan: its hash is part of what the ranks
// compare before the first step.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_BUCKET_PLAN_H_
#define LOCKSTEP_WORKER_COLLECTIVE_BUCKET_PLAN_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::collective {

// Sizes of buckets.
struct BucketSizes {
  size_t bucket = 4 << 20;
  size_t first = 1 << 20;
  size_t last = 1 << 20;

  bool operator==(const BucketSizes&) const = default;
};
// Returns the sizes that suit a backend. Shared memory: buckets that fit a
// core's cache. TCP: buckets long enough for its bandwidth, short enough to
// begin early. With `bucket_bytes` buckets have that size, and the first and
// the last one at most that size.
BucketSizes SizesFor(std::string_view backend, size_t bucket_bytes = 0);

struct BucketParameter {
  std::string name;
  size_t count = 0;  // elements; 0 is allowed
  DataType type = DataType::kFloat32;
};

struct BucketPlanOptions {
  size_t bucket_bytes = 25 << 20;
  size_t first_bucket_bytes = 1 << 20;
  // 0: the same size as the others.
  size_t last_bucket_bytes = 0;
  // float32 words; 0 for none.
  size_t control_words = 16;
};

struct BucketEntry {
  size_t parameter = 0;     // index into the parameters that were given
  size_t offset_bytes = 0;  // in the bucket; a multiple of 64
  size_t count = 0;         // elements
};

struct BucketLayout {
  DataType type = DataType::kFloat32;
  // The whole bucket, gaps and control word included: it is allocated, and
  // reduced, as one piece.
  size_t count = 0;  // elements
  size_t bytes = 0;
  std::vector<BucketEntry> entries;
};

struct BucketPlan {
  std::vector<BucketLayout> buckets;
  // The control word is at the end of the last bucket; valid when there are
  // control words.
  size_t control_offset_bytes = 0;
  size_t control_words = 0;
  // 16 hexadecimal digits over names, types, sizes and places.
  std::string hash;
};

// InvalidArgument: a name that is empty or comes twice, an unknown type, a
// size that overflows, a bucket size of 0.
StatusOr<BucketPlan> PlanBuckets(const std::vector<BucketParameter>& parameters,
                                 const BucketPlanOptions& options);

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_BUCKET_PLAN_H_
