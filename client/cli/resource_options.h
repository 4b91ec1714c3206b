// Options that `submit` and `run` share: a task's resources and environment.
#ifndef LOCKSTEP_CLIENT_CLI_RESOURCE_OPTIONS_H_
#define LOCKSTEP_CLIENT_CLI_RESOURCE_OPTIONS_H_

#include <string>

#include "client/cli/submit_spec.h"
#include "common/cli/command.h"

namespace lockstep::cli {

// Adds --cpus, --memory, --gpus, --gpu-type, --pool, --env for *f, which
// outlives the command. `unit` is what they apply to: "task", "node".
void AddResourceOptions(const FlagGroup& group, SubmitFlags* f,
                        const std::string& unit);
// Adds --end-with and --end-grace.
void AddEndOptions(const FlagGroup& group, SubmitFlags* f);
// Adds --hang, --stall-after, --progress-pattern, --node-lost-timeout,
// --idle-notice and --idle-stop.
void AddHangOptions(const FlagGroup& group, SubmitFlags* f);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_RESOURCE_OPTIONS_H_
