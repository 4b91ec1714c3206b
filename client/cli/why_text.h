// Says in a sentence why a job is where it is. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_WHY_TEXT_H_
#define LOCKSTEP_CLIENT_CLI_WHY_TEXT_H_

#include <string>

#include "lockstep/v1/evidence.pb.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep::cli {

// "Before attempt 2 was stopped", "When attempt 1 failed": what `kept`
// shows.
std::string KeptTitle(const v1::Job& job, const v1::JobEvidence& kept);

// Of a running job the verdict of `evidence`; of one that failed because its
// ranks stood still that of `kept`; of another ended one the first cause: the
// rank, how it ended, where and with which words; of a waiting one what it
// waits for. Null is for evidence that there is not.
std::string WhyVerdict(const v1::Job& job, const v1::JobEvidence* evidence,
                       const v1::JobEvidence* kept);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_WHY_TEXT_H_
