// Finds logs that are incomplete because their node is silent. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_LOST_LOGS_H_
#define LOCKSTEP_CLIENT_CLI_LOST_LOGS_H_

#include <string>
#include <vector>

#include "client/lib/client.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/node.pb.h"
#include "lockstep/v1/task.pb.h"

namespace lockstep::cli {

// True if `options` selects logs of ranks that have not ended. Only then the
// nodes matter.
bool HasOpenLogs(const v1::Job& job, const LogOptions& options);

// Returns a sentence for each selected rank whose log is cut off: "the log of
// rank 1 ends here: node b has been silent since ...; later lines are on it".
// Such a rank has not ended, and its node is UNKNOWN, LOST or not in the
// cluster.
std::vector<std::string> LostLogs(const v1::Job& job,
                                  const std::vector<v1::Node>& nodes,
                                  const LogOptions& options);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_LOST_LOGS_H_
