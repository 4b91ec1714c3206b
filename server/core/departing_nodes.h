// The nodes that a job which recovers in place must be without, and why. Pure;
// for replacing.cc.
//
// Lost: the node is lost, or came back without the job's ranks; or a rank
// failed there that must not start there again, because its GPU is faulty or
// the node cools down. Left: it is drained with a grace. In the second half of
// that it counts as lost where the others may train without it (elastic.h).
// Held back: a user wants fewer tasks (held_back.h).
#ifndef LOCKSTEP_SERVER_CORE_DEPARTING_NODES_H_
#define LOCKSTEP_SERVER_CORE_DEPARTING_NODES_H_

#include <map>

#include "server/core/job_view.h"

namespace lockstep::server {

struct Departing {
  // The ranks there are gone, or go before another node is ready for them.
  bool lost = false;
  Cause cause;
  bool held_back = false;
};

// A drained node that can be neither replaced in time nor done without is not
// among them, and then none that is left is: the job moves as a whole.
std::map<NodeName, Departing> DepartingNodes(const Job& job,
                                             const JobView& view, Time now);

// Whether the node is drained with a grace.
bool IsLeft(const JobView& view, const NodeName& node);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_DEPARTING_NODES_H_
