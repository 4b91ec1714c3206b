// The checkpoint that a user chose for a job to resume from. Pure value.
#ifndef LOCKSTEP_COMMON_MODEL_RESTORE_TARGET_H_
#define LOCKSTEP_COMMON_MODEL_RESTORE_TARGET_H_

#include <cstdint>
#include <optional>

namespace lockstep {

struct RestoreTarget {
  // The step of a complete checkpoint, 1 or more. Absent if the job begins from
  // the start.
  std::optional<int64_t> step;

  bool from_start() const { return !step.has_value(); }
  bool operator==(const RestoreTarget&) const = default;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_RESTORE_TARGET_H_
