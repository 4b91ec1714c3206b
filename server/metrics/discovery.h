// What Prometheus is to scrape, in the form of its HTTP service discovery
// (https://prometheus.io/docs/prometheus/latest/http_sd/). Pure.
//
// Each target names its own `job` ("lockstep-worker", ...), so that one
// http_sd_configs is a whole scrape configuration. Series of the coordinator
// have `node` labels of their own: its target has none.
#ifndef LOCKSTEP_SERVER_METRICS_DISCOVERY_H_
#define LOCKSTEP_SERVER_METRICS_DISCOVERY_H_

#include <string>
#include <vector>

#include "server/coordinator/snapshot.h"

namespace lockstep {

// A node that is lost stays for so long: whoever watches sees that it does not
// answer before it is gone.
inline constexpr Duration kLostTargetStays = std::chrono::hours(1);

struct DiscoveryOptions {
  std::string cluster;
  // HOST:PORT of the coordinator's own HTTP port; empty: left out.
  std::string coordinator;
  // That port speaks TLS.
  bool tls = false;
};

// Why Prometheus cannot find the node's daemon, in a sentence; empty: it can.
std::string UnreachableHttp(const NodeInfo& info);

// A JSON list, "[]" when it is empty. Ports that only their own host reaches
// are left out, unless that host is reached by loopback, too. The scheme is
// what each daemon says; ports that others reach are served by TLS in any case.
std::string TargetsJson(const std::vector<NodeSnapshot>& nodes,
                        const DiscoveryOptions& options, Time now);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_METRICS_DISCOVERY_H_
