// Moves the tasks of a node to another node while the other ranks of the job
// stay: for a RUNNING job that can recover in place (recovery.h). Pure; for
// lifecycle.cc, recovery.cc and assignments.cc.
//
// A node is replaced (Job::replacements) when
//   lost   it is lost, or came back without the job's ranks; or a rank failed
//          there that must not start there again: its GPU is faulty, or the
//          node cools down. The other ranks hold their state meanwhile.
//   left   it is drained with a grace. Its ranks run on meanwhile.
// It is held back, and gets no other node, while a user wants fewer tasks of an
// elastic job (held_back.h).
//
// 1. Another node gets all tasks of the node: the scheduler picks one that has
//    nothing of the job, because the ranks of one node share memory and a plan.
//    A node that came back empty is its own replacement. The new node prepares
//    as at the start of a generation.
// 2. When it has prepared, one recovery moves the tasks: the ranks there are
//    new, the cluster spec names the new node, the coordinator tells the old
//    one to stop. The new ranks start when nothing is left there. All lost
//    nodes go in one recovery, nodes that are left one by one.
//
// A new node that refuses, is lost or silent, is drained, or gets a faulty GPU
// before the move is given up, and the scheduler picks another one. The gang
// restarts instead if no rank on another node is left, or if no node has
// prepared in place of a lost one within JobSpec::hold
// (LifecycleTimeouts::hold). A drained node has half of its grace for this.
// Then it counts as lost where the others may train without its ranks
// (elastic.h), and is released: it stops them, and what they held is free. Else
// the job saves and moves as a whole (moving.h).
#ifndef LOCKSTEP_SERVER_CORE_REPLACING_H_
#define LOCKSTEP_SERVER_CORE_REPLACING_H_

#include <optional>
#include <set>
#include <vector>

#include "server/core/job_view.h"
#include "server/core/placement.h"

namespace lockstep::server {

// Returns null if the node is not being replaced.
const Replacement* ReplacementOf(const Job& job, const NodeName& from);
// Returns null if nothing is to move to the node.
const Replacement* ReplacementOn(const Job& job, const NodeName& to);

// Whether another node will have the ranks on the node, or has them already.
bool WaitsForNode(const Job& job, const NodeName& node);

// Whether ranks are gone whose tasks wait for another node, and that the others
// wait for.
bool HasLostNode(const Job& job);

// Whether each drained node that the job must leave is being replaced.
bool LeavesInPlace(const Job& job, const JobView& view);

// Adds what must be replaced, removes what need not be any more. For a job that
// may not replace nodes, only those that were released stay. Returns a cause if
// the gang must restart.
std::optional<Cause> PlanReplacements(Job* job, const JobView& view,
                                      Duration hold, Time now);

// Whether a replacement waits for a node with room.
bool WantsPlaces(const Job& job);
// Gives nodes with room to those that wait, the best fit first, and takes the
// room from `hosts`. Leaves out nodes that `know` the generation: a node does
// not prepare twice for it.
void PlaceReplacements(Job* job, const std::set<NodeName>& know,
                       std::vector<HostCapacity>* hosts, Time now);

// The nodes whose tasks can move now: all lost ones, or those whose ranks are
// away, or one that is left. Empty: none, or a new node has not prepared.
std::vector<NodeName> ReadyToMove(const Job& job, const JobView& view);

// The ranks on the node.
std::set<int32_t> RanksOn(const Job& job, const NodeName& node);

// Puts the tasks of `from` on their new node, also in the cluster spec. The
// ranks are untouched.
// REQUIRES: ReadyToMove names it.
void MoveTasks(Job* job, const JobView& view, const NodeName& from);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_REPLACING_H_
