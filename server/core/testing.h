// For tests: short job specs, and one job with its nodes.
#ifndef LOCKSTEP_SERVER_CORE_TESTING_H_
#define LOCKSTEP_SERVER_CORE_TESTING_H_

#include <initializer_list>
#include <ostream>
#include <string>
#include <vector>

#include "server/core/lifecycle.h"

namespace lockstep::server {

RoleSpec Role(TaskType type, int32_t count, Resources resources = {1, 0, 0, ""},
              int32_t ranks_per_task = 1);
// A chief and workers, `tasks` in all, with one core each.
JobSpec NativeSpec(const JobName& name, int32_t tasks);
JobSpec ProgramSpec(const JobName& name, std::vector<RoleSpec> roles);

ExitStatus Code(int32_t code);
ExitStatus Signal(int32_t signal);
// Code 1, of an uncaught exception.
ExitStatus Raised(const std::string& message, const std::string& location);
ExitStatus Victim(ExitStatus exit);

// One job and the state of its nodes. Reports only set that state; Settle()
// applies the rules, as the coordinator does after each report.
struct Scene {
  explicit Scene(JobSpec spec);

  // Decides until nothing changes. Fails the test if that takes too long, if a
  // decision is not stable, or if one breaks an invariant.
  void Settle();
  void Advance(Duration by);
  // Places each task, in rank order, on a node. Of a job that may run with
  // fewer tasks, as many as there are nodes.
  void Put(const std::vector<NodeName>& nodes);

  // ---- Reports on the current generation ----
  GangStatus& Gang(const NodeName& node);
  RankStatus& Rank(int32_t rank);
  void Prepared();
  void Refused(const NodeName& node, Cause cause);
  void Started();
  void Joined();
  void Exited(int32_t rank, ExitStatus exit);
  // The node has nothing left. Ranks that were alive were stopped.
  void Stopped(const NodeName& node);
  void AllStopped();
  // Settles up to RUNNING.
  void Run(const std::vector<NodeName>& nodes);

  std::vector<NodeName> Nodes() const;

  Job job;
  JobView view;
  LifecycleTimeouts timeouts;
  Time now;
};

// Returns the broken invariant, or "".
std::string BrokenRule(const Job& before, const Job& after);

void PrintTo(JobState state, std::ostream* out);
void PrintTo(Reason reason, std::ostream* out);
void PrintTo(Goal goal, std::ostream* out);
void PrintTo(NodeState state, std::ostream* out);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_TESTING_H_
