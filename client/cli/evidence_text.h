// Prints evidence about a job's ranks. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_EVIDENCE_TEXT_H_
#define LOCKSTEP_CLIENT_CLI_EVIDENCE_TEXT_H_

#include <string>

#include "client/cli/text.h"
#include "lockstep/v1/evidence.pb.h"

namespace lockstep::cli {

// The verdict, the groups of equal stacks with their ranks, how the odd ones
// differ, and what would help. With `all`, also what each rank's other threads
// and processes do.
std::string EvidenceText(const v1::JobEvidence& evidence, bool all,
                         const Style& style);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_EVIDENCE_TEXT_H_
