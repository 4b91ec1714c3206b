// Options that `submit` and `run` share: what a task takes, and its
// environment.
#ifndef LOCKSTEP_CLIENT_CLI_RESOURCE_OPTIONS_H_
#define LOCKSTEP_CLIENT_CLI_RESOURCE_OPTIONS_H_

#include <string>

#include "client/cli/submit_spec.h"
#include "common/cli/command.h"

namespace lockstep {

// --cpus, --memory, --gpus, --gpu-type, --pool, --env into *f, which outlives
// the command. `unit` is what they are of: "task", "node".
void AddResourceOptions(const FlagGroup& group, SubmitFlags* f,
                        const std::string& unit);
// --end-with and --end-grace.
void AddEndOptions(const FlagGroup& group, SubmitFlags* f);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_RESOURCE_OPTIONS_H_
