// What a job would be and where it would go: --dry-run and `lockstep plan`.
#ifndef LOCKSTEP_CLIENT_CLI_PLAN_H_
#define LOCKSTEP_CLIENT_CLI_PLAN_H_

#include <string>

#include "client/cli/cli.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep {

// Roles with their machines, each task's place or why it would wait, the price
// of an hour. Pure.
std::string FormatPlan(const v1::SubmitJobResponse& response);

// In the format that was asked for, on stdout; notes of a table on stderr.
// Returns the exit code: kExitUnschedulable for a job that can never run here.
StatusOr<int> WritePlan(const Cli& cli, const v1::SubmitJobResponse& response);

// "note: ..." for each.
void WriteNotes(const Cli& cli, const std::vector<std::string>& notes);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_PLAN_H_
