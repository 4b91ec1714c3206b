// Plans a job for --dry-run and `lockstep plan`.
#ifndef LOCKSTEP_CLIENT_CLI_PLAN_H_
#define LOCKSTEP_CLIENT_CLI_PLAN_H_

#include <string>

#include "client/cli/cli.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep::cli {

// Shows roles with their machines, each task's place or the reason to wait, and
// the price per hour. Pure.
std::string FormatPlan(const v1::SubmitJobResponse& response);

// Writes in the selected format to stdout; notes of a table go to stderr.
// Returns the exit code: kExitUnschedulable for a job that can never run here.
StatusOr<int> WritePlan(const Cli& cli, const v1::SubmitJobResponse& response);

// Writes "note: ..." for each.
void WriteNotes(const Cli& cli, const std::vector<std::string>& notes);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_PLAN_H_
