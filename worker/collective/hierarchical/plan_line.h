// The reduction plan of the hierarchical backend as a line: the grouping of
// ranks on hosts, and the plan of the ranks that meet between the hosts. Pure.
//
//   hierarchical ranks=8 hosts=2x4 between tcp ranks=2 doubling=65536 ...
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_PLAN_LINE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_PLAN_LINE_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace lockstep::worker::collective::hierarchical {

// Returns the host of each rank as runs: "0*3,1,0*2".
std::string HostRuns(const std::vector<int>& hosts);

// hosts[r] is the number of rank r's host. Returns "2x4" where each host has
// the same number of consecutive ranks; else "0*3,1", or a hash where that is
// long.
std::string GroupingText(const std::vector<int>& hosts);

// `between`: the line of the ranks between the hosts; empty where there is one
// host.
std::string HierarchicalPlanLine(const std::vector<int>& hosts,
                                 std::string_view between);

// Returns the line between the hosts in `line`. InvalidArgument: it is not a
// plan of this backend, or is for other ranks or another grouping; the sentence
// names both.
StatusOr<std::string> BetweenPlanOf(std::string_view line,
                                    const std::vector<int>& hosts);

}  // namespace lockstep::worker::collective::hierarchical

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_PLAN_LINE_H_
