// The coordinator's HTTP pages: /, /jobs/NAME, /nodes/NAME and /sd.
#ifndef LOCKSTEP_SERVER_PAGE_HTTP_PAGES_H_
#define LOCKSTEP_SERVER_PAGE_HTTP_PAGES_H_

#include <functional>
#include <string>

#include "common/http/server.h"
#include "server/coordinator/cluster_queries.h"
#include "server/metrics/metric_ledger.h"
#include "server/query/visibility.h"

namespace lockstep::server {

// Pointers outlive `server`, which is not started. `cluster` is its name.
// `reader` returns the identity of a page's reader.
void AddCoordinatorPages(const std::string& cluster,
                         const ClusterQueries* queries,
                         const MetricLedger* ledger,
                         const std::function<JobReader()>& reader,
                         http::HttpServer* server);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_PAGE_HTTP_PAGES_H_
