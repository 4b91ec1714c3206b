// Options that `submit` and `run` share: what a task takes, and its
// environment.
#ifndef LOCKSTEP_CLIENT_CLI_RESOURCE_OPTIONS_H_
#define LOCKSTEP_CLIENT_CLI_RESOURCE_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <string>

#include "client/cli/submit_spec.h"

namespace lockstep {

// --cpus, --memory, --gpus, --gpu-type, --pool, --env into *f, which outlives
// `app`. `unit` is what they are of: "task", "node". `group` heads them.
// --end-with and --end-grace.
void AddEndOptions(CLI::App* app, SubmitFlags* f, const std::string& group);

void AddResourceOptions(CLI::App* app, SubmitFlags* f, const std::string& unit,
                        const std::string& group);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_RESOURCE_OPTIONS_H_
