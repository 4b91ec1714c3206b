// Tasks that outlive their worker daemon, as they are made to: found and ended
// when the whole cluster goes.
#ifndef LOCKSTEP_CLIENT_LOCAL_LEFTOVERS_H_
#define LOCKSTEP_CLIENT_LOCAL_LEFTOVERS_H_

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep {

// Ends every lockstep-shim that works in one of `dirs` (its working directory,
// an argument or an open file lies there), and all that descends from it:
// first the ranks, so that the shim can record how they ended; then itself.
// Returns how many ranks' shims there were. DeadlineExceeded when one is still
// there after `timeout`.
StatusOr<int> KillLeftovers(const std::vector<std::string>& dirs,
                            Duration timeout);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_LOCAL_LEFTOVERS_H_
