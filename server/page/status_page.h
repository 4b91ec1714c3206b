// The coordinator's pages for people: read-only, no script. Pure. `reader`: who
// looks; jobs are shown to them as query/visibility.h has it.
#ifndef LOCKSTEP_SERVER_PAGE_STATUS_PAGE_H_
#define LOCKSTEP_SERVER_PAGE_STATUS_PAGE_H_

#include <optional>
#include <string>
#include <vector>

#include "common/http/server.h"
#include "server/coordinator/snapshot.h"
#include "server/page/html.h"
#include "server/query/visibility.h"

namespace lockstep {

// More jobs than these are counted, not listed; those that live come first.
inline constexpr size_t kMaxJobsShown = 200;

// Jobs and nodes.
HttpResponse OverviewPage(const std::string& cluster, const JobReader& reader,
                          const CoordinatorView& view);
// `late_rank`: for whom the others waited lately.
HttpResponse JobPage(const std::string& cluster, const JobReader& reader,
                     const JobSnapshot& job, std::optional<int32_t> late_rank);
// `jobs`: those that hold resources of the node.
HttpResponse NodePage(const std::string& cluster, const JobReader& reader,
                      const NodeSnapshot& node,
                      const std::vector<JobSnapshot>& jobs, WallTime now);
// What is wrong with the request, in a sentence.
HttpResponse ErrorPage(const std::string& cluster, const Status& status);

// ---- Shared by the pages ----
// The newest first; nothing where there are none.
void EventTable(const std::vector<Event>& events, Html* html);
// The committed steps, with a bar where their total is known.
void AddSteps(const RankProgress& progress, Html* html);
// What each page begins with.
std::string PageHead(const std::string& cluster, const std::string& title);
// The cause's sentence, else its reason; empty where that says no more than the
// state does.
std::string WhyOf(const JobState& state, const Cause& cause);
// "since": how long ago, for people; empty for a time that is not set.
std::string Ago(WallTime then, WallTime now);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_PAGE_STATUS_PAGE_H_
