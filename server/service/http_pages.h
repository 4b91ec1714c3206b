// The coordinator's own HTTP pages: /, /jobs/NAME, /nodes/NAME and /sd.
#ifndef LOCKSTEP_SERVER_SERVICE_HTTP_PAGES_H_
#define LOCKSTEP_SERVER_SERVICE_HTTP_PAGES_H_

#include <string>

#include "common/http/server.h"
#include "server/coordinator/coordinator.h"
#include "server/service/metric_ledger.h"

namespace lockstep {

// Pointers outlive `server`, which is not started. `cluster` is its name.
void AddCoordinatorPages(const std::string& cluster, Coordinator* coordinator,
                         const MetricLedger* ledger, HttpServer* server);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_HTTP_PAGES_H_
