// What Linux, TF_CONFIG and our own packets leave a job: for all who check what
// one asks for.
#ifndef LOCKSTEP_COMMON_MODEL_LIMITS_H_
#define LOCKSTEP_COMMON_MODEL_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace lockstep {

// Linux takes no longer argument, and no longer "NAME=value", without its
// final NUL (MAX_ARG_STRLEN of include/uapi/linux/binfmts.h).
inline constexpr size_t kMaxArgument = 128 * 1024 - 1;

// A task's TF_CONFIG lists the address of every task; each takes up to 24
// bytes ("255.255.255.255:65535", with its quotes and a comma).
inline constexpr int64_t kMaxTfConfigTasks = (kMaxArgument - 256) / 24;

// The text of a reduction plan (reduction_plan.h): with all else it goes into
// one packet of 64 KiB between the worker daemon and a rank.
inline constexpr size_t kMaxReductionPlan = 24 * 1024;

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_LIMITS_H_
