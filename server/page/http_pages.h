// The coordinator's HTTP pages: /, /jobs/NAME, /jobs/NAME/logs, /jobs/NAME/why,
// /compare, /nodes/NAME and /sd.
#ifndef LOCKSTEP_SERVER_PAGE_HTTP_PAGES_H_
#define LOCKSTEP_SERVER_PAGE_HTTP_PAGES_H_

#include <functional>
#include <string>

#include "common/http/server.h"
#include "server/coordinator/cluster_queries.h"
#include "server/history/history_keeper.h"
#include "server/logs/log_store.h"
#include "server/metrics/metric_ledger.h"
#include "server/query/visibility.h"
#include "server/service/evidence_calls.h"

namespace lockstep::server {

struct PageParts {
  // Its name.
  std::string cluster;
  // What GrafanaLink makes links of; empty for none.
  std::string grafana_url;
  const ClusterQueries* queries = nullptr;
  const MetricLedger* ledger = nullptr;
  HistoryKeeper* history = nullptr;
  LogStore* logs = nullptr;
  EvidenceCalls* evidence = nullptr;
  // Returns the identity of a page's reader.
  std::function<JobReader()> reader;
};

// Pointers outlive `server`, which is not started.
void AddCoordinatorPages(const PageParts& parts, http::HttpServer* server);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_PAGE_HTTP_PAGES_H_
