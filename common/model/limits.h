// Limits on a job from Linux, TF_CONFIG and lockstep's packets. All checks of
// job specs share them.
#ifndef LOCKSTEP_COMMON_MODEL_LIMITS_H_
#define LOCKSTEP_COMMON_MODEL_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace lockstep {

// The longest argument and "NAME=value" that Linux accepts, without the final
// NUL (MAX_ARG_STRLEN of include/uapi/linux/binfmts.h).
inline constexpr size_t kMaxArgument = 128 * 1024 - 1;

// A task's TF_CONFIG lists the address of every task. Each takes up to 24 bytes
// ("255.255.255.255:65535", with its quotes and a comma).
inline constexpr int64_t kMaxTfConfigTasks = (kMaxArgument - 256) / 24;

// The text of a reduction plan (reduction_plan.h). It shares one 64 KiB packet
// between worker daemon and rank with other fields.
inline constexpr size_t kMaxReductionPlan = 24 * 1024;

// JobSpec::progress_pattern, in bytes.
inline constexpr size_t kMaxProgressPattern = 1024;

// In the list of neighbours that a node gets.
inline constexpr size_t kMaxNeighbours = 8;

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_LIMITS_H_
