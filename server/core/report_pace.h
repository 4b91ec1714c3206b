// Batches the reports of a wide job's nodes before a decision. Pure.
//
// A decision looks at every node and task of its job and compares the result
// with the job before, so one decision for each report of N nodes would compute
// quadratically. (The store is no reason: it writes the rows that changed.)
// Reports of a wide gang therefore wait for a sixteenth of the nodes, or for
// the last node that ends a phase. Nothing is lost: a report is soft state. It
// is acknowledged only after its decision is committed, and a daemon sends it
// again when it registers.
#ifndef LOCKSTEP_SERVER_CORE_REPORT_PACE_H_
#define LOCKSTEP_SERVER_CORE_REPORT_PACE_H_

#include <array>
#include <cstddef>
#include <map>

#include "server/core/job.h"

namespace lockstep::server {

class ReportPace {
 public:
  // The approximate number of decisions in one phase of a gang.
  static constexpr size_t kDecisions = 16;

  // Starts a generation on `nodes` nodes. A repeated call does nothing.
  void Reset(Generation generation, size_t nodes);

  // Records a report of a node of the job. Returns false if the decision may
  // wait for more reports; the caller still makes it soon. Reports that may
  // change the job's course (a failed rank, a refusal, a report of rank 0's
  // node, the last node of a phase) never wait, nor do those of gangs of fewer
  // than 2 * kDecisions nodes.
  bool Take(const Job& job, const NodeName& node, const GangStatus& report);
  // A decision about the job was made.
  void Decided() { waiting_ = 0; }

 private:
  // The phases that a node passes, from nothing done to all stopped.
  static constexpr size_t kLevels = 7;
  static size_t LevelOf(const GangStatus& report);
  // Returns true if no other node is behind it.
  bool Raise(const NodeName& node, size_t level);

  Generation generation_ = 0;
  size_t nodes_ = 0;
  size_t waiting_ = 0;
  std::map<NodeName, size_t> levels_;
  // Nodes by level.
  std::array<size_t, kLevels> counts_ = {};
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_REPORT_PACE_H_
