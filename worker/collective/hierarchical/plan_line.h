// The reduction plan of the hierarchical backend as a line: who is on whose
// host, and the plan of those that meet between the hosts. Pure.
//
//   hierarchical ranks=8 hosts=2x4 between tcp ranks=2 doubling=65536 ...
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_PLAN_LINE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_PLAN_LINE_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

// hosts[r] is the number of rank r's host: "2x4" where each has the same number
// of ranks, one after the other; else "0*3,1", or where that is long a hash.
std::string GroupingText(const std::vector<int>& hosts);

// `between`: their line; empty where nobody meets.
std::string HierarchicalPlanLine(const std::vector<int>& hosts,
                                 std::string_view between);

// The line of those between the hosts in `line`. InvalidArgument: it is no plan
// of this backend, or of other ranks or another grouping; the sentence has
// both.
StatusOr<std::string> BetweenPlanOf(std::string_view line,
                                    const std::vector<int>& hosts);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_PLAN_LINE_H_
