// What a training job runs: a container or a Python package. A part of
// Translate. Pure.
#ifndef LOCKSTEP_COMMON_TRAINING_PROGRAM_H_
#define LOCKSTEP_COMMON_TRAINING_PROGRAM_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/training/training_input.h"

namespace lockstep {

// masterConfig.imageUri is there.
bool IsContainer(const TrainingInput& input);

// Everything that one of the two needs is there, and nothing of the other.
Status CheckProgram(const TrainingJob& job);

// The config of one role that has tasks. Adds to `notes`.
Status CheckReplica(const TrainingJob& job, const ReplicaInput& role,
                    const ReplicaNames& names, std::vector<std::string>* notes);

// Fit for execve: each as short as Linux wants it, and without NUL.
// `path` is of the list.
Status CheckArguments(const std::vector<std::string>& args,
                      const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_PROGRAM_H_
