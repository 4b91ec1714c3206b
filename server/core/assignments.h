// What every node should be doing about a job. Pure, level-triggered: the same
// whenever and however often it is asked, so that it can be sent again after
// any break.
#ifndef LOCKSTEP_SERVER_CORE_ASSIGNMENTS_H_
#define LOCKSTEP_SERVER_CORE_ASSIGNMENTS_H_

#include <optional>
#include <set>
#include <vector>

#include "common/model/assignment.h"
#include "server/core/job_places.h"
#include "server/core/job_view.h"
#include "server/core/moving.h"

namespace lockstep {

struct StopGraces {
  // After a failure: ranks cannot go on anyway.
  Duration failure = std::chrono::seconds(1);
  // Cancel, drain, maxRunningTime.
  Duration cancel = std::chrono::seconds(30);
  // After the job's success and GraceAfterSuccess of ending.h.
  Duration completion = std::chrono::seconds(1);
};

// Makes the assignments of a job's nodes, one node after the other: what all
// have in common is looked at once. All that it is given outlives it.
class Assigner {
 public:
  // `places` are the job's; `view` has at least the nodes that are asked for,
  // and of a job that leaves a drained node, all of its nodes.
  Assigner(const Job& job, const JobPlaces& places, const JobView& view,
           const StopGraces& graces, Time now);

  // As DesiredAssignments, without the cluster spec, which is as long as the
  // gang is wide and the same for all nodes of a generation: whoever sends one
  // that HasCluster adds it.
  std::vector<Assignment> For(const NodeName& node) const;
  static bool HasCluster(const Assignment& assignment) {
    return assignment.goal == Goal::kLaunch || assignment.goal == Goal::kGo;
  }

 private:
  Assignment Make(Generation generation, Goal goal) const;
  GangSpec SpecFor(const NodeName& node) const;
  Goal CurrentGoal(const NodeName& node) const;
  bool MayEndByThemselves(const NodeName& node) const;
  Duration Grace() const;

  const Job& job_;
  const JobPlaces& places_;
  const JobView& view_;
  const StopGraces& graces_;
  const Time now_;
  // Of a job that is stopped to leave a drained node.
  std::optional<Departure> departure_;
  // The job has succeeded, and ranks of its group may run on.
  bool may_run_on_ = false;
};

// The nodes whose assignments may be others now that `before` has become
// `after`; null: it is new. What else they depend on (reports, time) is not
// the job's.
std::set<NodeName> NodesToTell(const Job* before, const Job& after);

// Goals for `node` about every generation of `job` that it holds something
// of, or that it reports and that is over. `epoch` is left 0.
std::vector<Assignment> DesiredAssignments(const Job& job, const JobView& view,
                                           const NodeName& node,
                                           const StopGraces& graces, Time now);

// What to say about a gang that belongs to no job we know: STOP, and once it
// is stopped, FORGET.
Assignment DisownedAssignment(const GangStatus& gang);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_ASSIGNMENTS_H_
