// How the ranks of a job reduce their gradients: everything that determines the
// order of the sums, and so their last bits. Rank 0 of the first generation
// makes it. It is stored with the job and in each checkpoint, and every later
// generation of the same size and shape uses it. Pure value;
// docs/formats/reduction-plan.md describes its text:
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
  // The shape: the number of ranks and of hosts. If placement matters, it is
  // part of `communicator`.
  int32_t ranks = 0;
  int32_t hosts = 0;
  // The gradients' type between the ranks: "fp32" or "bf16".
  std::string wire = "fp32";
  // From Communicator::ReductionPlan(), opaque here: one line of printable
  // ASCII. Empty if there is no choice.
  std::string communicator;
  // Bucket sizes (BucketPlanOptions): of most buckets, the first and the last.
  uint64_t bucket_bytes = 0;
  uint64_t first_bucket_bytes = 0;
  uint64_t last_bucket_bytes = 0;
  uint32_t parameters = 0;

  // BucketPlan::hash of the buckets from step `learned_at` + 1 on: names, sizes
  // and places of the gradients. 16 hexadecimal digits.
  std::string layout;
  // The order in which parameters fill the buckets once the state holds
  // `learned_at` steps. Before that, or if it is empty: from the last to the
  // first.
  std::vector<uint32_t> order;
  int64_t learned_at = 0;

  bool operator==(const ReductionPlan&) const = default;
};

// Returns the text, at most kMaxReductionPlan bytes. ResourceExhausted if it
// would be longer.
StatusOr<std::string> Format(const ReductionPlan& plan);
// Returns the plan's id: 16 hexadecimal digits of FNV-1a over the whole plan,
// to detect differences.
std::string HashOf(const ReductionPlan& plan);

// Accepts lines in any order, empty lines and comments with '#'. Without the
// line `hash` the text is not verified. InvalidArgument names the line and the
// fault.
StatusOr<ReductionPlan> ParseReductionPlan(std::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_REDUCTION_PLAN_H_
