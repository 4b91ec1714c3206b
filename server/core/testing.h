// For tests: job specs in a line, and one job with the nodes that report it.
#ifndef LOCKSTEP_SERVER_CORE_TESTING_H_
#define LOCKSTEP_SERVER_CORE_TESTING_H_

#include <initializer_list>
#include <ostream>
#include <string>
#include <vector>

#include "server/core/lifecycle.h"

namespace lockstep {

RoleSpec Role(TaskType type, int32_t count, Resources resources = {1, 0, 0, ""},
              int32_t ranks_per_task = 1);
// A chief and workers, in all `tasks`, of a core each.
JobSpec NativeSpec(const JobName& name, int32_t tasks);
JobSpec ProgramSpec(const JobName& name, std::vector<RoleSpec> roles);

ExitStatus Code(int32_t code);
ExitStatus Signal(int32_t signal);
ExitStatus Victim(ExitStatus exit);

// One job and what is known of its nodes. Reports only set what is known;
// Settle() lets the rules work, as the coordinator does after each report.
struct Scene {
  explicit Scene(JobSpec spec);

  // Decides until nothing changes. Fails the test when that takes too long,
  // when a decision is not stable, or when one breaks a rule of every state.
  void Settle();
  void Advance(Duration by);
  // Each task, in rank order, on a node.
  void Put(const std::vector<NodeName>& nodes);

  // ---- Reports on the current generation ----
  GangStatus& Gang(const NodeName& node);
  RankStatus& Rank(int32_t rank);
  void Prepared();
  void Refused(const NodeName& node, Cause cause);
  void Started();
  void Joined();
  void Exited(int32_t rank, ExitStatus exit);
  // Nothing is left on the node; ranks that still lived were stopped by us.
  void Stopped(const NodeName& node);
  void AllStopped();
  // Up to RUNNING, settled.
  void Run(const std::vector<NodeName>& nodes);

  std::vector<NodeName> Nodes() const;

  Job job;
  JobView view;
  LifecycleTimeouts timeouts;
  Time now;
};

// Rules of every state of a job; empty, or what is broken.
std::string BrokenRule(const Job& before, const Job& after);

void PrintTo(JobState state, std::ostream* out);
void PrintTo(Reason reason, std::ostream* out);
void PrintTo(Goal goal, std::ostream* out);
void PrintTo(NodeState state, std::ostream* out);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_TESTING_H_
