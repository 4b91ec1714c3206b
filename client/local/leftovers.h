// Finds and ends processes of a cluster that its records lack: tasks, which
// outlive their worker daemon by design, and a daemon whose starter was killed
// before it recorded the pid. Used when the whole cluster goes down.
#ifndef LOCKSTEP_CLIENT_LOCAL_LEFTOVERS_H_
#define LOCKSTEP_CLIENT_LOCAL_LEFTOVERS_H_

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/os/process.h"

namespace lockstep::cli {

// Ends every lockstep-shim that works in one of `dirs` (its working directory,
// an argument or an open file is there) with all its descendants: first the
// ranks, so that the shim can record their exit, then itself. Returns the
// number of ranks' shims. DeadlineExceeded if one remains after `timeout`.
StatusOr<int> KillLeftovers(const std::vector<std::string>& dirs,
                            Duration timeout);

// Returns the processes with the program name `program` and the working
// directory `dir`.
std::vector<Process> FindDaemons(const std::string& program,
                                 const std::string& dir);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LOCAL_LEFTOVERS_H_
