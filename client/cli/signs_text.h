// What shows that a program makes progress, in words. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_SIGNS_TEXT_H_
#define LOCKSTEP_CLIENT_CLI_SIGNS_TEXT_H_

#include <string>

#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/task.pb.h"

namespace lockstep::cli {

// Returns the signs of the rank that speaks for the job: the one with the best
// source and the newest sign; in a list of jobs those of the chief. Null: it is
// a native job, or has none that runs.
const v1::ProgressSigns* SignsOf(const v1::Job& job);

// "log", "session", "files", "activity", "none".
std::string SourceText(v1::SignSource source);

// "log: step 120/1000, the last sign 3.1 s ago, usually within 1.2 s, stalled
// after 60 s without one". Empty without signs.
std::string SignsText(const v1::Job& job);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_SIGNS_TEXT_H_
