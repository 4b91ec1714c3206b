// Says in a sentence why a job is where it is. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_WHY_TEXT_H_
#define LOCKSTEP_CLIENT_CLI_WHY_TEXT_H_

#include <string>

#include "lockstep/v1/evidence.pb.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep::cli {

// Of a running job the verdict of `evidence`, which is null where there is
// none; of an ended one the first cause: the rank, how it ended, where and with
// which words; of a waiting one what it waits for.
std::string WhyVerdict(const v1::Job& job, const v1::JobEvidence* evidence);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_WHY_TEXT_H_
