// The page that shows the curves of several jobs in one chart for each series.
// Pure.
#ifndef LOCKSTEP_SERVER_PAGE_COMPARE_PAGE_H_
#define LOCKSTEP_SERVER_PAGE_COMPARE_PAGE_H_

#include <map>
#include <string>
#include <vector>

#include "common/http/server.h"
#include "server/history/history_plot.h"

namespace lockstep::server {

// `plots`: of those of `jobs` of which something is known, by name, with equal
// steps. REQUIRES: the reader may see the jobs' details.
http::HttpResponse ComparePage(const std::string& cluster,
                               const std::vector<std::string>& jobs,
                               const std::map<std::string, HistoryPlot>& plots);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_PAGE_COMPARE_PAGE_H_
