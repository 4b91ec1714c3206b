// The machines of a training job: roles, counts and sizes. A part of Translate.
// Pure.
#ifndef LOCKSTEP_COMMON_TRAINING_ROLES_H_
#define LOCKSTEP_COMMON_TRAINING_ROLES_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/job.h"
#include "common/training/machines.h"
#include "common/training/training_input.h"

namespace lockstep {

struct RoleMachines {
  TaskType type = TaskType::kChief;
  int32_t count = 1;
  Machine machine;
  // The paths of the role's other fields.
  const ReplicaInput* input = nullptr;  // A part of the TrainingInput.
  ReplicaNames names;
};

// Returns the roles with tasks in the order of ranks: chief, worker, ps,
// evaluator. Adds to `notes`. `input` must outlive the result.
StatusOr<std::vector<RoleMachines>> ResolveRoles(
    const TrainingInput& input, const MachineTable& table,
    std::vector<std::string>* notes);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_ROLES_H_
