// The summary of a finished job. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_SUMMARY_H_
#define LOCKSTEP_CLIENT_CLI_SUMMARY_H_

#include <string>
#include <vector>

#include "client/cli/text.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep::cli {

// Shows the outcome, the duration of each phase, the use and its cost.
// REQUIRES: the state is final. Lines without measurements are omitted.
std::string FormatSummary(const v1::Job& job, const Style& style);

// The parts, which `describe` uses, too. Each is a sentence or a list without
// its label, or "" if there is nothing to show.
std::string PhasesText(const v1::Job& job);
// "40.3 ms: compute 71.2 %, ...": a rank's wall time per step, split into
// shares that add up to 100 %.
std::string StepTimeText(const v1::Job& job);
std::string UsageText(const v1::Job& job);
// Names the rank of the last attempt that delayed the others in the last
// hundred steps, and the cost; or the one that they waited for over the whole
// attempt. Empty if ranks wait for each other less than 1 % of the time, or
// there is only one.
std::string StragglerText(const v1::Job& job);
std::string BillText(const v1::Job& job);
// `with_loss` adds the chief's last loss if the job does not report it.
std::string ValuesText(const v1::Job& job, bool with_loss = true);
std::string TrainingText(const v1::Job& job);

// The first cause of a failure, as the coordinator reports it, and the last
// lines of the rank that failed first.
std::string FormatFailure(const v1::Job& job,
                          const std::vector<v1::LogLine>& last_lines,
                          const Style& style);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_SUMMARY_H_
