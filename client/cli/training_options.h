// Binds the flags of `jobs submit training` to TrainingFlags.
#ifndef LOCKSTEP_CLIENT_CLI_TRAINING_OPTIONS_H_
#define LOCKSTEP_CLIENT_CLI_TRAINING_OPTIONS_H_

#include "client/cli/cli.h"
#include "client/cli/training_flags.h"

namespace lockstep::cli {

// `flags` outlives `command`. `plan` hides the flags without effect there.
void AddTrainingOptions(Command* command, TrainingFlags* flags, bool plan);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_TRAINING_OPTIONS_H_
