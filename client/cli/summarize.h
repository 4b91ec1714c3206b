// `jobs describe --summarize`: the tables of gcloud. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_SUMMARIZE_H_
#define LOCKSTEP_CLIENT_CLI_SUMMARIZE_H_

#include <string>

#include "lockstep/v1/job.pb.h"

namespace lockstep::cli {

// Job Overview, Training Input Summary, Training Output Summary. A job that was
// not submitted with a TrainingInput has no input table; its machines are shown
// in the same way.
std::string SummarizeJob(const v1::Job& job);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_SUMMARIZE_H_
