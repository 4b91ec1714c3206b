// How the ranks of a job reduce their gradients: all that the order of the
// sums, and so their last bits, depends on. Made by rank 0 of the first
// generation, stored with the job and in each checkpoint, and used by every
// later generation of the same size and shape. Pure value; its text is
// docs/formats/reduction-plan.md:
//
//   lockstep-reduction-plan 1
//   ranks 4
//   hosts 2
//   wire fp32
//   communicator tcp ...
//   buckets 2097152 1048576 262144
//   parameters 14
//   layout 0123456789abcdef
//   learned-at 2
//   order 13-10 8 9 7-0
//   hash 0123456789abcdef
#ifndef LOCKSTEP_COMMON_MODEL_REDUCTION_PLAN_H_
#define LOCKSTEP_COMMON_MODEL_REDUCTION_PLAN_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/model/limits.h"

namespace lockstep {

struct ReductionPlan {
  // The shape: that the ranks are as many, on as many hosts. Who is where is
  // part of `communicator` where it matters.
  int32_t ranks = 0;
  int32_t hosts = 0;
  // The gradients' type between the ranks: "fp32" or "bf16".
  std::string wire = "fp32";
  // Of Communicator::ReductionPlan(), opaque here: one line of printable
  // ASCII. Empty: nothing was to be chosen.
  std::string communicator;
  // Sizes of buckets (BucketPlanOptions): most of them, the first, the last.
  uint64_t bucket_bytes = 0;
  uint64_t first_bucket_bytes = 0;
  uint64_t last_bucket_bytes = 0;
  uint32_t parameters = 0;
  // BucketPlan::hash of the buckets as they are from step `learned_at` + 1 on:
  // names, sizes and places of the gradients. 16 hexadecimal digits.
  std::string layout;
  // Parameters in the order in which buckets are filled once `learned_at`
  // steps are in the state; until then, or where it is empty: from the last to
  // the first.
  std::vector<uint32_t> order;
  int64_t learned_at = 0;

  bool operator==(const ReductionPlan&) const = default;
};

// The text, at most kMaxReductionPlan bytes. ResourceExhausted: it would be
// longer.
StatusOr<std::string> Format(const ReductionPlan& plan);
// 16 hexadecimal digits over all of it: what plans are called by. FNV-1a, to
// notice a difference.
std::string HashOf(const ReductionPlan& plan);

// Takes lines in any order, empty ones, and such as begin with '#'; without
// the line `hash` the text is taken as it is. InvalidArgument: one sentence
// that says which line is wrong, and how.
StatusOr<ReductionPlan> ParseReductionPlan(std::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_REDUCTION_PLAN_H_
