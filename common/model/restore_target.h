// What a person said that a job shall resume from. Pure value.
#ifndef LOCKSTEP_COMMON_MODEL_RESTORE_TARGET_H_
#define LOCKSTEP_COMMON_MODEL_RESTORE_TARGET_H_

#include <cstdint>
#include <optional>

namespace lockstep {

struct RestoreTarget {
  // The complete checkpoint of this step, 1 or more; absent: none, the job
  // begins from the start.
  std::optional<int64_t> step;

  bool from_start() const { return !step.has_value(); }
  bool operator==(const RestoreTarget&) const = default;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_RESTORE_TARGET_H_
