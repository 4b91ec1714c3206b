// The machines of a training job: which tasks, how many, of what size. A part
// of Translate. Pure.
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
  // Where the role's other fields are, and what they are called.
  const ReplicaInput* input = nullptr;  // Of the TrainingInput.
  ReplicaNames names;
};

// In the order of ranks: chief, worker, ps, evaluator; none of no tasks. Adds
// to `notes`. `input` must outlive the answer.
StatusOr<std::vector<RoleMachines>> ResolveRoles(
    const TrainingInput& input, const MachineTable& table,
    std::vector<std::string>* notes);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_ROLES_H_
