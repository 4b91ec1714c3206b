// The end of a job as text. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_SUMMARY_H_
#define LOCKSTEP_CLIENT_CLI_SUMMARY_H_

#include <string>
#include <vector>

#include "client/cli/text.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep {

// What it came to, how long each phase took, what it used and what that costs.
// REQUIRES: the state is final. Lines about what nobody measured are left out.
std::string FormatSummary(const v1::Job& job, const Style& style);

// The pieces, also used by `describe`; each a sentence or a list without its
// label, empty when there is nothing to say.
std::string PhasesText(const v1::Job& job);
// "40.3 ms: compute 71.2 %, ...": wall time of a rank per step, split into
// shares that add up to 100 %.
std::string StepTimeText(const v1::Job& job);
std::string UsageText(const v1::Job& job);
// Which rank of the last attempt held the others up in the last hundred steps,
// and what it costs; else, over all of the attempt, which one they wait for.
// Empty where ranks wait for each other less than 1 % of the time, or where
// there is only one.
std::string StragglerText(const v1::Job& job);
std::string BillText(const v1::Job& job);
// `with_loss`: the chief's last loss, too, where the job reports none.
std::string ValuesText(const v1::Job& job, bool with_loss = true);
std::string TrainingText(const v1::Job& job);

// The first cause of a failure, as the coordinator tells it, and the last lines
// of the rank that failed first.
std::string FormatFailure(const v1::Job& job,
                          const std::vector<v1::LogLine>& last_lines,
                          const Style& style);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_SUMMARY_H_
