// The front page: the cluster's totals, jobs, GPUs and nodes. Pure. `reader`
// sees jobs as query/visibility.h allows.
#ifndef LOCKSTEP_SERVER_PAGE_OVERVIEW_PAGE_H_
#define LOCKSTEP_SERVER_PAGE_OVERVIEW_PAGE_H_

#include <string>
#include <vector>

#include "common/http/server.h"
#include "server/coordinator/snapshot.h"
#include "server/page/html.h"
#include "server/page/page_query.h"
#include "server/query/visibility.h"

namespace lockstep::server {

// Further jobs are counted, not listed.
inline constexpr size_t kMaxJobsShown = 200;
// Further GPUs, likewise.
inline constexpr size_t kMaxGpusShown = 2048;

http::HttpResponse OverviewPage(const std::string& cluster,
                                const JobReader& reader,
                                const CoordinatorView& view,
                                const OverviewQuery& query);

// Returns the jobs that `query` selects, in its order. A job's labels and
// comment select it only for those who see them.
std::vector<const JobSnapshot*> SelectJobs(const JobReader& reader,
                                           const CoordinatorView& view,
                                           const OverviewQuery& query);

// What the heads of a job table's columns link to.
struct JobTableLinks {
  // Null: they are no links.
  const OverviewQuery* query = nullptr;
};
// Lists the jobs in the given order.
void JobTable(const JobReader& reader,
              const std::vector<const JobSnapshot*>& jobs,
              const JobTableLinks& links, Html* html);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_PAGE_OVERVIEW_PAGE_H_
