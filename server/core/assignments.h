// The assignments of a job's nodes. Pure and level-triggered: the result does
// not depend on earlier calls, so it can be sent again after any interruption.
#ifndef LOCKSTEP_SERVER_CORE_ASSIGNMENTS_H_
#define LOCKSTEP_SERVER_CORE_ASSIGNMENTS_H_

#include <optional>
#include <set>
#include <vector>

#include "common/model/assignment.h"
#include "server/core/job_places.h"
#include "server/core/job_view.h"
#include "server/core/moving.h"

namespace lockstep::server {

struct StopGraces {
  // After a failure. The ranks cannot continue anyway.
  Duration failure = std::chrono::seconds(1);
  // Cancel, drain, maxRunningTime.
  Duration cancel = std::chrono::seconds(30);
  // After the job's success and GraceAfterSuccess of ending.h.
  Duration completion = std::chrono::seconds(1);
};

// Makes the assignments of a job's nodes, one node at a time. It computes what
// all nodes share only once. Its arguments must outlive it.
class Assigner {
 public:
  // `places` are the job's. `view` has at least the nodes that For() is called
  // with, and all nodes of a job that leaves a drained node.
  Assigner(const Job& job, const JobPlaces& places, const JobView& view,
           const StopGraces& graces, Time now);

  // Like DesiredAssignments, but without the cluster spec, which grows with the
  // gang and is the same for all nodes of a generation. The sender adds it to
  // each assignment for which HasCluster() is true.
  std::vector<Assignment> For(const NodeName& node) const;
  static bool HasCluster(const Assignment& assignment) {
    return assignment.goal == Goal::kLaunch || assignment.goal == Goal::kGo ||
           (assignment.goal == Goal::kPrepare && assignment.spec &&
            assignment.spec->warm_starts);
  }

 private:
  Assignment Make(Generation generation, Goal goal) const;
  void AddTask(const TaskStatus& task, GangSpec* spec) const;
  void AddTasksLike(const NodeName& from,
                    const std::vector<std::vector<int32_t>>& gpus,
                    GangSpec* spec) const;
  GangSpec SpecFor(const NodeName& node) const;
  bool MustWaitForOldRanks(const NodeName& node) const;
  // Whether a task ran there before in this generation.
  bool HasLeft(const NodeName& node) const;
  bool IsReplacedWhileEmpty(const NodeName& node) const;
  Goal CurrentGoal(const NodeName& node) const;
  bool MayEndByThemselves(const NodeName& node) const;
  Duration Grace() const;

  const Job& job_;
  const JobPlaces& places_;
  const JobView& view_;
  const StopGraces& graces_;
  const Time now_;
  // Set while the job is stopped to leave a drained node.
  std::optional<Departure> departure_;
  // The job has succeeded, and ranks of its group may run on.
  bool may_run_on_ = false;
};

// Returns the nodes whose assignments may differ after `before` became `after`.
// `before` is null for a new job. Other inputs of assignments (reports, time)
// are not considered.
std::set<NodeName> NodesToUpdate(const Job* before, const Job& after);

// Returns the assignments of `node` for each generation of `job` that holds its
// resources, and for each ended generation that it still reports. `epoch` stays
// 0.
// 0.
std::vector<Assignment> DesiredAssignments(const Job& job, const JobView& view,
                                           const NodeName& node,
                                           const StopGraces& graces, Time now);

// Returns the assignment for a gang of an unknown job: STOP, and once it has
// stopped, FORGET.
Assignment DisownedAssignment(const GangStatus& gang);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_ASSIGNMENTS_H_
