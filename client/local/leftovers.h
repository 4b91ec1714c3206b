// Processes of a cluster that its records do not hold: tasks that outlive their
// worker daemon, as they are made to, and a daemon whose starter was killed
// before it could write down whom it had started. Found and ended when the
// whole cluster goes.
#ifndef LOCKSTEP_CLIENT_LOCAL_LEFTOVERS_H_
#define LOCKSTEP_CLIENT_LOCAL_LEFTOVERS_H_

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/os/process.h"

namespace lockstep {

// Ends every lockstep-shim that works in one of `dirs` (its working directory,
// an argument or an open file lies there), and all that descends from it:
// first the ranks, so that the shim can record how they ended; then itself.
// Returns how many ranks' shims there were. DeadlineExceeded when one is still
// there after `timeout`.
StatusOr<int> KillLeftovers(const std::vector<std::string>& dirs,
                            Duration timeout);

// The processes whose program has the name `program` and whose working
// directory is `dir`.
std::vector<Process> FindDaemons(const std::string& program,
                                 const std::string& dir);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_LOCAL_LEFTOVERS_H_
