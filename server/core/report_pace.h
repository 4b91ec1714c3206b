// When what the nodes of a wide job report is worth a decision. Pure.
//
// A decision looks at all of a job, and its commit writes all of it: one for
// each report of N nodes is quadratic. So the reports of a gang of many nodes
// wait for each other: for a sixteenth of the nodes, or for the last one that
// ends a phase. Nothing is lost by that: a report is soft state, which nobody
// acknowledges before the decision about it is committed, and which a daemon
// gives again when it registers.
#ifndef LOCKSTEP_SERVER_CORE_REPORT_PACE_H_
#define LOCKSTEP_SERVER_CORE_REPORT_PACE_H_

#include <array>
#include <cstddef>
#include <map>

#include "server/core/job.h"

namespace lockstep {

class ReportPace {
 public:
  // In a phase of a gang, about so many decisions are made.
  static constexpr size_t kDecisions = 16;

  // Of a generation on so many nodes. Again: does nothing.
  void Reset(Generation generation, size_t nodes);

  // Takes in what a node of the job says now. False: the decision may wait for
  // more reports; the caller makes it all the same before long. Never waits:
  // what may change the job's course (a rank that failed, a refusal, news of
  // rank 0's node, the last node of a phase), and gangs of less than
  // 2 * kDecisions nodes.
  bool Take(const Job& job, const NodeName& node, const GangStatus& said);
  // The job was decided about.
  void Decided() { waiting_ = 0; }

 private:
  // What a node has done, from nothing to all stopped.
  static constexpr size_t kLevels = 7;
  static size_t LevelOf(const GangStatus& said);
  // True: no other node is behind it.
  bool Raise(const NodeName& node, size_t level);

  Generation generation_ = 0;
  size_t nodes_ = 0;
  size_t waiting_ = 0;
  std::map<NodeName, size_t> levels_;
  // Nodes by level.
  std::array<size_t, kLevels> counts_ = {};
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_REPORT_PACE_H_
