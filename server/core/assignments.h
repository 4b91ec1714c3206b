// What every node should be doing about a job. Pure, level-triggered: the same
// whenever and however often it is asked, so that it can be sent again after
// any break.
#ifndef LOCKSTEP_SERVER_CORE_ASSIGNMENTS_H_
#define LOCKSTEP_SERVER_CORE_ASSIGNMENTS_H_

#include <optional>
#include <vector>

#include "common/model/assignment.h"
#include "server/core/lifecycle.h"

namespace lockstep {

struct StopGraces {
  // After a failure: ranks cannot go on anyway.
  Duration failure = std::chrono::seconds(1);
  // Cancel, drain, maxRunningTime.
  Duration cancel = std::chrono::seconds(30);
  // After the deciding rank's exit 0 and completion_grace.
  Duration completion = std::chrono::seconds(1);
};

// Goals for `node` about every generation of `job` that it holds something
// of, or that it reports and that is over. `epoch` is left 0.
std::vector<Assignment> DesiredAssignments(const Job& job, const JobView& view,
                                           const NodeName& node,
                                           const StopGraces& graces,
                                           const LifecycleTimeouts& timeouts,
                                           Time now);

// What to say about a gang that belongs to no job we know: STOP, and once it
// is stopped, FORGET.
Assignment DisownedAssignment(const GangStatus& gang);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_ASSIGNMENTS_H_
