// `jobs describe --summarize`: the tables that gcloud prints. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_SUMMARIZE_H_
#define LOCKSTEP_CLIENT_CLI_SUMMARIZE_H_

#include <string>

#include "lockstep/v1/job.pb.h"

namespace lockstep {

// Job Overview, Training Input Summary, Training Output Summary. A job that
// did not come in AI Platform's words has no input; what its machines stand for
// it shares with the others.
std::string SummarizeJob(const v1::Job& job);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_SUMMARIZE_H_
