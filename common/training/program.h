// The program of a training job: a container or a Python package. A part of
// Translate. Pure.
#ifndef LOCKSTEP_COMMON_TRAINING_PROGRAM_H_
#define LOCKSTEP_COMMON_TRAINING_PROGRAM_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/training/training_input.h"

namespace lockstep {

// True if masterConfig.imageUri is set.
bool IsContainer(const TrainingInput& input);

// Checks that all fields of one of the two are set, and none of the other.
Status CheckProgram(const TrainingJob& job);

// Checks the config of one role with tasks. Adds to `notes`.
Status CheckReplica(const TrainingJob& job, const ReplicaInput& role,
                    const ReplicaNames& names, std::vector<std::string>* notes);

// Checks arguments for execve: within Linux's length limit and without NUL.
// `path` names the list.
Status CheckArguments(const std::vector<std::string>& args,
                      const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_PROGRAM_H_
